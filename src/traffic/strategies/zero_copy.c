// SPDX-License-Identifier: GPL-2.0-only
#include "strategy.h"
#include "zerocopy_socket.h"

const struct strategy strategy_zero_copy = {
	.name = "zero_copy",
	.aliases = (const char *const[]){ "zerocopy", "a3", NULL },
	.claim = { 0, 0, "one sendmsg(MSG_ZEROCOPY) over a prebuilt iovec; buffers are not reused before the notification" },
	.open = zerocopy_socket__open,
	.close = zerocopy_socket__close,
	.send = zerocopy_socket__send,
	.reap = zerocopy_socket__reap,
};

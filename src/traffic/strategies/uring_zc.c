// SPDX-License-Identifier: GPL-2.0-only
#include "strategy.h"
#include "uring.h"

const struct strategy strategy_uring_zc = {
	.name = "uring_zc",
	.aliases = (const char *const[]){ "send_zc", NULL },
	.claim = { 0, 0, "one SENDMSG_ZC of io_uring over a prebuilt iovec (SEND_ZC if there is only one field); buffers are not "
		   "reused before the notification" },
	.in_ring = true,
	.registers = true,
	.open = uring__open_zc,
	.close = uring__close_zc,
	.send = uring__send_zc,
	.reap = uring__reap,
};

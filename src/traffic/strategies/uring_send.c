// SPDX-License-Identifier: GPL-2.0-only
#include "strategy.h"
#include "uring.h"

const struct strategy strategy_uring_send = {
	.name = "uring_send",
	.aliases = (const char *const[]){ "uring", NULL },
	.claim = { 0, 1, "one SENDMSG of io_uring over a prebuilt iovec; SEND if there is only one field" },
	.in_ring = true,
	.open = uring__open,
	.close = uring__close,
	.send = uring__send,
};

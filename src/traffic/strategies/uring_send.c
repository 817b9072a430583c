// SPDX-License-Identifier: GPL-2.0
#include "strategy.h"
#include "uring.h"

static int uring_send_send(struct flow *flow, struct message *message)
{
	return uring__send(flow, message->fields);
}

const struct strategy strategy_uring_send = {
	.name = "uring_send",
	.aliases = (const char *const[]){ "uring", NULL },
	.claim = { 0, 1, "one SENDMSG of io_uring over a prebuilt iovec; SEND where there is one field" },
	.in_ring = true,
	.open = uring__open,
	.close = uring__close,
	.send = uring_send_send,
};

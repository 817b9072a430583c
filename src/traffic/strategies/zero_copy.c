// SPDX-License-Identifier: GPL-2.0
#include "strategy.h"
#include "zerocopy_socket.h"

static int zero_copy_send(struct flow *flow, struct message *message)
{
	return zerocopy_socket__send(flow, message->fields, &message->pending);
}

const struct strategy strategy_zero_copy = {
	.name = "zero_copy",
	.aliases = (const char *const[]){ "zerocopy", "a3", NULL },
	.claim = { 0, 0, "one sendmsg(MSG_ZEROCOPY) over a prebuilt iovec, buffers held until completion" },
	.open = zerocopy_socket__open,
	.close = zerocopy_socket__close,
	.send = zero_copy_send,
	.reap = zerocopy_socket__reap,
};

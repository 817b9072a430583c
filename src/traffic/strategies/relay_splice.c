// SPDX-License-Identifier: GPL-2.0
#include <unistd.h>

#include "splice.h"
#include "strategy.h"

static int relay_splice_open(struct flow *flow)
{
	/* A slot holds a piece of a packet, which is a page or more of them, but for the first and the last. */
	return splice__open(flow, flow->shape.size_bytes / sysconf(_SC_PAGESIZE) + 2);
}

static int relay_splice_send(struct flow *flow, struct message *message)
{
	(void)message;
	return splice__relay(flow);
}

const struct strategy strategy_relay_splice = {
	.name = "relay_splice",
	.claim = { 0, 0, "splice() from the socket of a program before it into a pipe, splice() from there into the socket" },
	.relays = true,
	.splices = true,
	.open = relay_splice_open,
	.close = splice__close,
	.send = relay_splice_send,
};

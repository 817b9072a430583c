// SPDX-License-Identifier: GPL-2.0-only
#include <unistd.h>

#include "splice.h"
#include "strategy.h"

static int relay_splice_open(struct flow *flow)
{
	/* Each slot of the pipe holds a piece of a packet: at least a page, except the first and the last piece. */
	return splice__open(flow, flow->shape.size_bytes / sysconf(_SC_PAGESIZE) + 2);
}

static int relay_splice_send(struct flow *flow, struct message *message)
{
	(void)message;
	return splice__relay(flow);
}

const struct strategy strategy_relay_splice = {
	.name = "relay_splice",
	.claim = { 0, 0, "splice() from an upstream connection into a pipe, then splice() from the pipe into the socket" },
	.relays = true,
	.splices = true,
	.open = relay_splice_open,
	.close = splice__close,
	.send = relay_splice_send,
};

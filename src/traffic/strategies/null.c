// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>

#include "strategy.h"

/* Refuse --mode rr: nothing is sent, so no answer would ever come. */
static int null_open(struct flow *flow)
{
	if (!flow->expects_reply)
		return 0;
	return failure__set(&flow->failure, -EINVAL,
			    "--mode rr: null sends nothing, so no answer comes; use --mode stream");
}

static int null_send(struct flow *flow, struct message *message)
{
	(void)flow;
	(void)message;
	return 0;
}

const struct strategy strategy_null = {
	.name = "null",
	.claim = { 0, 0, "sends nothing, which shows the cost of the loop and the clock" },
	.open = null_open,
	.send = null_send,
};

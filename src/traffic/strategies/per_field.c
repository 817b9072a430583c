// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "strategy.h"

static int cork(struct flow *flow, int on)
{
	if (!setsockopt(flow->fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)))
		return 0;
	return failure__set(&flow->failure, -errno, "TCP_CORK: connection: %s", strerror(errno));
}

static int per_field_send(struct flow *flow, struct message *message)
{
	int err = flow->push == PUSH_CORK ? cork(flow, 1) : 0;

	for (unsigned int i = 0; i < flow->shape.fields && !err; i++) {
		/* The last one sends what the others held back: none of them waits for the timer of 200 ms. */
		bool more = flow->push == PUSH_MORE && i + 1 < flow->shape.fields;

		err = flow__send_with(flow, message->fields[i].iov_base, message->fields[i].iov_len,
				      more ? MSG_MORE : 0);
	}
	return flow->push == PUSH_CORK && !err ? cork(flow, 0) : err;
}

const struct strategy strategy_per_field = {
	.name = "per_field",
	.aliases = (const char *const[]){ "perfield", NULL },
	.claim = { 0, 1, "one send() per field" },
	.by_field = true,
	.send = per_field_send,
};

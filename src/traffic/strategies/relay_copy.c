// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "strategy.h"
#include "upstream.h"

#define BUFFER_ALIGN_BYTES 4096

/* Allocate the relay buffer in flow->state. The buffer is as large as a message, and all forwarded bytes pass through it. */
static int relay_copy_open(struct flow *flow)
{
	if (posix_memalign(&flow->state, BUFFER_ALIGN_BYTES, flow->shape.size_bytes))
		return failure__set(&flow->failure, -ENOMEM, "cannot allocate a relay buffer of %zu bytes: %s; lower --size",
				    flow->shape.size_bytes, strerror(ENOMEM));
	/* Cause the page faults of the buffer now, so that they do not slow the first message. */
	memset(flow->state, 0, flow->shape.size_bytes);
	return 0;
}

static void relay_copy_close(struct flow *flow)
{
	free(flow->state);
}

/* Forward data on arrival, because a proxy does not wait until its buffer is full. */
static int relay_copy_send(struct flow *flow, struct message *message)
{
	size_t left = flow->shape.size_bytes;

	(void)message;
	while (left) {
		ssize_t got = recv(flow->upstream, flow->state, left, 0);
		int err = upstream__account(flow, "recv", got);

		if (!err && got > 0)
			err = flow__send(flow, flow->state, got);
		if (err)
			return err;
		left -= got > 0 ? got : 0;
	}
	return 0;
}

const struct strategy strategy_relay_copy = {
	.name = "relay_copy",
	.claim = { 0, 2, "recv() from an upstream connection into one buffer, then send()" },
	.relays = true,
	.open = relay_copy_open,
	.close = relay_copy_close,
	.send = relay_copy_send,
};

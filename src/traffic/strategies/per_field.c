// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

#include "strategy.h"

static int per_field_open(struct flow *flow)
{
	if (flow->batch <= 1)
		return 0;
	flow->state = calloc(flow->batch, sizeof(struct mmsghdr));
	return flow->state ? 0 : failure__set(&flow->failure, -ENOMEM, "batch: %s", strerror(ENOMEM));
}

static void per_field_close(struct flow *flow)
{
	free(flow->state);
	flow->state = NULL;
}

static int cork(struct flow *flow, int on)
{
	if (!setsockopt(flow->fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)))
		return 0;
	return failure__set(&flow->failure, -errno, "TCP_CORK: connection: %s", strerror(errno));
}

/* The number of fields that sendmmsg(2) has taken, or -errno. It stops at one that it took a part of: the rest follows. */
static int send_several(struct flow *flow, struct iovec *fields, unsigned int count, int flags)
{
	struct mmsghdr *headers = flow->state;
	size_t left;
	int sent, err;

	for (unsigned int i = 0; i < count; i++)
		headers[i] = (struct mmsghdr){ .msg_hdr = { .msg_iov = &fields[i], .msg_iovlen = 1 } };
	sent = sendmmsg(flow->fd, headers, count, MSG_NOSIGNAL | flags);
	flow->counts.sendmmsg_calls++;
	flow->counts.sendmmsg_sends += sent < 0 ? 1 : sent;
	if (sent < 0)
		return flow__send_failed(flow, "sendmmsg");
	for (int i = 0; i < sent; i++)
		flow->counts.bytes += headers[i].msg_len;
	left = sent ? fields[sent - 1].iov_len - headers[sent - 1].msg_len : 0;
	if (!left)
		return sent;
	flow->counts.short_sends++;
	err = flow__send_with(flow, (char *)fields[sent - 1].iov_base + headers[sent - 1].msg_len, left, flags);
	return err ? err : sent;
}

/* Likewise with as many of them as are sent at a time. */
static int send_some(struct flow *flow, struct iovec *fields, unsigned int count, int flags)
{
	int err;

	if (flow->batch > 1)
		return send_several(flow, fields, count < flow->batch ? count : flow->batch, flags);
	err = flow__send_with(flow, fields->iov_base, fields->iov_len, flags);
	return err ? err : 1;
}

static int per_field_send(struct flow *flow, struct message *message)
{
	int sent = flow->push == PUSH_CORK ? cork(flow, 1) : 0;
	unsigned int count = flow->shape.fields;

	for (unsigned int i = 0; i < count && sent >= 0; i += sent) {
		/* The last one sends what the others held back: none of them waits for the timer of 200 ms. */
		bool more = flow->push == PUSH_MORE && i + 1 < count;

		sent = send_some(flow, message->fields + i, more ? count - 1 - i : count - i, more ? MSG_MORE : 0);
	}
	if (sent < 0)
		return sent;
	return flow->push == PUSH_CORK ? cork(flow, 0) : 0;
}

const struct strategy strategy_per_field = {
	.name = "per_field",
	.aliases = (const char *const[]){ "perfield", NULL },
	.claim = { 0, 1, "one send() per field" },
	.by_field = true,
	.open = per_field_open,
	.close = per_field_close,
	.send = per_field_send,
};

// SPDX-License-Identifier: GPL-2.0-only
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
	return flow->state ? 0 : failure__set(&flow->failure, -ENOMEM, "--batch %u: %s", flow->batch, strerror(ENOMEM));
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
	return failure__set(&flow->failure, -errno, "cannot set TCP_CORK: %s", strerror(errno));
}

/*
 * Send fields with one sendmmsg(2). Return the number of fields sent, or -errno. sendmmsg() stops after a field that it
 * sent only in part; this function sends the rest of that field.
 */
static int send_batch(struct flow *flow, struct iovec *fields, unsigned int count, int flags)
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

/* Send the next field, or with --batch the next fields. Return the number of fields sent, or -errno. */
static int send_next_fields(struct flow *flow, struct iovec *fields, unsigned int count, int flags)
{
	int err;

	if (flow->batch > 1)
		return send_batch(flow, fields, count < flow->batch ? count : flow->batch, flags);
	err = flow__send_with(flow, fields->iov_base, fields->iov_len, flags);
	return err ? err : 1;
}

static int per_field_send(struct flow *flow, struct message *message)
{
	int sent = flow->push == PUSH_CORK ? cork(flow, 1) : 0;
	unsigned int count = flow->shape.fields;

	for (unsigned int i = 0; i < count && sent >= 0; i += sent) {
		/* The last field is sent without MSG_MORE, so that held-back fields do not wait for the timer of 200 ms. */
		bool more = flow->push == PUSH_MORE && i + 1 < count;

		sent = send_next_fields(flow, message->fields + i, more ? count - 1 - i : count - i, more ? MSG_MORE : 0);
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

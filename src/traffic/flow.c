// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/sendfile.h>

#include "clock.h"
#include "flow.h"

const char *const issue_names[] = {
	[ISSUE_INLINE] = "inline", [ISSUE_ASYNC] = "async", [ISSUE_SQPOLL] = "sqpoll",
};
const char *const push_names[] = { [PUSH_NONE] = "none", [PUSH_MORE] = "more", [PUSH_CORK] = "cork" };
const char *const vectored_names[] = { [VECTORED_SENDMSG] = "sendmsg", [VECTORED_WRITEV] = "writev" };
const char *const via_names[] = { [VIA_SENDFILE] = "sendfile", [VIA_SPLICE] = "splice" };
const char *const notices_names[] = { [NOTICES_BATCH] = "batch", [NOTICES_EACH] = "each", [NOTICES_NEVER] = "never" };
_Static_assert(sizeof(notices_names) / sizeof(*notices_names) == NOTICES_CNT, "a name each");
_Static_assert(sizeof(push_names) / sizeof(*push_names) == PUSH_CNT, "a name each");
_Static_assert(sizeof(vectored_names) / sizeof(*vectored_names) == VECTORED_CNT, "a name each");
_Static_assert(sizeof(via_names) / sizeof(*via_names) == VIA_CNT, "a name each");
_Static_assert(sizeof(issue_names) / sizeof(*issue_names) == ISSUE_CNT, "a name each");

int flow__send_failed(struct flow *flow, const char *call)
{
	struct pollfd writable = { .fd = flow->fd, .events = POLLOUT };
	int err = -errno;

	if (err == -EINTR)
		return 0;
	if (err == -EAGAIN) {
		flow->counts.eagain++;
		poll(&writable, 1, -1);
		return 0;
	}
	if (err == -EPIPE || err == -ECONNRESET)
		return failure__set(&flow->failure, err, "%s: %s: the receiver closed the connection; "
				    "see its messages", call, strerror(-err));
	return failure__set(&flow->failure, err, "%s: %s", call, strerror(-err));
}

int flow__send(struct flow *flow, const void *from, size_t length)
{
	return flow__send_with(flow, from, length, 0);
}

int flow__send_with(struct flow *flow, const void *from, size_t length, int flags)
{
	const char *bytes = from;

	for (;;) {
		ssize_t sent = send(flow->fd, bytes, length, MSG_NOSIGNAL | flags);
		int err;

		flow->counts.sendto_calls++;
		if (sent >= 0) {
			flow->counts.bytes += sent;
			if ((size_t)sent == length)
				return 0;
			flow->counts.short_sends++;
			bytes += sent;
			length -= sent;
			continue;
		}
		err = flow__send_failed(flow, "send");
		if (err)
			return err;
	}
}

unsigned int flow__remainder(const struct iovec *fields, unsigned int count, size_t done,
			     struct iovec *rest)
{
	unsigned int skipped = 0;

	while (skipped < count && done >= fields[skipped].iov_len)
		done -= fields[skipped++].iov_len;
	if (skipped == count)
		return 0;
	memcpy(rest, fields + skipped, (count - skipped) * sizeof(*rest));
	rest[0].iov_base = (char *)rest[0].iov_base + done;
	rest[0].iov_len -= done;
	return count - skipped;
}

bool flow__advance(struct flow *flow, const struct iovec *fields, size_t *done, size_t sent, struct msghdr *left)
{
	flow->counts.bytes += sent;
	*done += sent;
	if (*done == flow->shape.size_bytes)
		return false;
	flow->counts.short_sends++;
	left->msg_iov = flow->rest;
	left->msg_iovlen = flow__remainder(fields, flow->shape.fields, *done, flow->rest);
	return true;
}

static ssize_t send_fields(struct flow *flow, const struct msghdr *header)
{
	if (flow->call == VECTORED_WRITEV) {
		/* SIGPIPE is ignored: writev(2) has no MSG_NOSIGNAL. */
		flow->counts.writev_calls++;
		return writev(flow->fd, header->msg_iov, header->msg_iovlen);
	}
	flow->counts.sendmsg_calls++;
	return sendmsg(flow->fd, header, MSG_NOSIGNAL);
}

int flow__sendmsg(struct flow *flow, struct message *message)
{
	struct iovec *fields = message->fields;
	struct msghdr header = { .msg_iov = fields, .msg_iovlen = flow->shape.fields };
	size_t done = 0;

	if (flow->shape.fields == 1 && flow->call == VECTORED_SENDMSG)
		return flow__send(flow, fields->iov_base, fields->iov_len);
	for (;;) {
		ssize_t sent = send_fields(flow, &header);
		int err;

		if (sent >= 0) {
			if (!flow__advance(flow, fields, &done, sent, &header))
				return 0;
			continue;
		}
		err = flow__send_failed(flow, vectored_names[flow->call]);
		if (err)
			return err;
	}
}

int flow__sendfile(struct flow *flow, off_t from)
{
	size_t left = flow->shape.size_bytes;

	for (;;) {
		/* SIGPIPE is ignored: sendfile(2) has no MSG_NOSIGNAL. */
		ssize_t sent = sendfile(flow->fd, flow->file, &from, left);
		int err;

		flow->counts.sendfile_calls++;
		flow->counts.spliced_calls++;
		if (sent > 0) {
			flow->counts.bytes += sent;
			flow->counts.spliced_bytes += sent;
			left -= sent;
			if (!left)
				return 0;
			flow->counts.short_sends++;
			continue;
		}
		if (!sent)
			return failure__set(&flow->failure, -EIO, "sendfile: the file of messages ends at byte %lld",
					    (long long)from);
		err = flow__send_failed(flow, "sendfile");
		if (err)
			return err;
	}
}

int flow__sent_zerocopy(struct flow *flow, uint32_t *pending, size_t bytes)
{
	uint32_t *waiting = flow->wait == NOTICES_NEVER ? NULL : pending;
	int err = zerocopy__sent(&flow->zerocopy, waiting, bytes, flow->timed ? clock__now_ns() : 0);

	if (!err)
		return 0;
	return failure__set(&flow->failure, err, "zero-copy: cannot account for a send, %u are in flight: %s",
			    flow->zerocopy.counts.in_flight, strerror(-err));
}

struct flow *flow__in_flight(struct flow *flow)
{
	if (flow->zerocopy.counts.in_flight)
		return flow;
	for (struct flow *other = flow->sibling; other && other != flow; other = other->sibling)
		if (other->zerocopy.counts.in_flight && !failure__happened(&other->failure))
			return other;
	return NULL;
}

int flow__reap(struct flow *flow, bool drain, int (*wait)(struct flow *flow))
{
	uint64_t begin_ns;
	int err = 0;

	if (drain) {
		while (!err && flow->zerocopy.counts.in_flight)
			err = wait(flow);
		return err;
	}
	begin_ns = clock__now_ns();
	err = wait(flow);
	flow->zerocopy.counts.waits++;
	flow->zerocopy.counts.wait_ns += clock__now_ns() - begin_ns;
	return err;
}

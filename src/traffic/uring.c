// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "memory.h"
#include "uring.h"

/* Constants of linux/io_uring.h since 6.2, which the headers of liburing 2.3 lack. */
#ifndef IORING_SEND_ZC_REPORT_USAGE
#define IORING_SEND_ZC_REPORT_USAGE (1U << 3)
#endif
#ifndef IORING_NOTIF_USAGE_ZC_COPIED
#define IORING_NOTIF_USAGE_ZC_COPIED (1U << 31)
#endif

#define REQUESTS 4u
/* Upper limit of the completion queue. The kernel keeps notifications that do not fit, and delivers them at the next wait. */
#define COMPLETIONS_MAX 4096u
/* Time after which the idle polling thread sleeps, shorter than a pause between segments. */
#define POLLER_IDLE_MS 2
#define WAIT_SLICE_NS (100 * NSEC_PER_MSEC)
/* Time limit for the next notification of a closed connection. */
#define LOST_NOTIFICATION_NS (1 * NSEC_PER_SEC)
/* Time limit for requests that get ENOMEM with nothing in flight, because other processes of the user hold the locked memory. */
#define STARVED_NS (2 * NSEC_PER_SEC)
/* Time to wait for memory that rings of ended processes still hold. */
#define FREED_NS (NSEC_PER_SEC / 2)
/* Largest buffer that io_uring registers (io_buffer_validate(), io_uring/rsrc.c). */
#define REGISTERED_MAX (1ull << 30)

static int explain_ring(struct flow *flow, int err)
{
	if (err == -ENOSYS)
		return failure__set(&flow->failure, err, "io_uring: not available in this kernel; use --impl one_copy or zero_copy");
	if (err == -EPERM)
		return failure__set(&flow->failure, err, "io_uring: switched off on this machine; allow it (sysctl "
				    "kernel.io_uring_disabled=0, or the seccomp profile of the container), or use --impl "
				    "one_copy or zero_copy");
	if (err == -ENOMEM)
		return failure__set(&flow->failure, err, "io_uring: no memory for a ring: the limit of locked memory is "
				    "%llu KiB for all processes of this user; raise it (ulimit -l) or lower --threads",
				    (unsigned long long)memlock__limit_bytes() >> 10);
	return failure__set(&flow->failure, err, "--issue %s: cannot create an io_uring: %s; use another --issue",
			    issue_names[flow->issue], strerror(-err));
}

static unsigned int completion_queue_size(const struct flow *flow)
{
	unsigned int wanted = 2 * flow->shape.slots;

	return wanted < 2 * REQUESTS ? 2 * REQUESTS : wanted > COMPLETIONS_MAX ? COMPLETIONS_MAX : wanted;
}

/*
 * Open a ring for one submitting thread that also runs the completion work, the cheapest setup (Linux 6.1), or a plain ring
 * on older kernels.
 */
static int open_ring(struct flow *flow, struct uring *uring)
{
	const unsigned int own = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
	const unsigned int base = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;
	struct io_uring_params params = { .flags = base, .cq_entries = completion_queue_size(flow) };
	struct io_uring_params plain;
	int err;

	if (flow->issue == ISSUE_SQPOLL) {
		params.flags |= IORING_SETUP_SQPOLL;
		params.sq_thread_idle = POLLER_IDLE_MS;
		return io_uring_queue_init_params(REQUESTS, &uring->ring, &params);
	}
	plain = params;
	params.flags |= own;
	err = io_uring_queue_init_params(REQUESTS, &uring->ring, &params);
	return err == -EINVAL ? io_uring_queue_init_params(REQUESTS, &uring->ring, &plain) : err;
}

int uring__open(struct flow *flow)
{
	struct uring *uring = calloc(1, sizeof(*uring));
	const struct timespec moment = { .tv_nsec = NSEC_PER_MSEC };
	uint64_t until_ns = clock__now_ns() + FREED_NS;
	int err;

	if (!uring)
		return failure__set(&flow->failure, -ENOMEM, "io_uring: %s", strerror(ENOMEM));
	/* The kernel releases the memory of a ring some time after its process has ended (io_ring_exit_work()). */
	while ((err = open_ring(flow, uring)) == -ENOMEM && clock__now_ns() < until_ns)
		nanosleep(&moment, NULL);
	if (err) {
		free(uring);
		return explain_ring(flow, err);
	}
	flow->state = uring;
	return 0;
}

void uring__close(struct flow *flow)
{
	struct uring *uring = flow->state;

	io_uring_queue_exit(&uring->ring);
	free(uring);
	flow->state = NULL;
}

/* Result of one request, once it has ended. */
struct outcome {
	uint64_t request;
	bool ended;
	int result;
};

static int take_notification(struct flow *flow, const struct io_uring_cqe *cqe)
{
	struct uring *uring = flow->state;
	uint32_t number = cqe->user_data;
	int err;

	/* Ignore the notification of a refused request: it sent nothing, although the notification says "copied". */
	if (uring->refused && number == flow->zerocopy.next) {
		uring->refused = false;
		return 0;
	}
	err = zerocopy__completed(&flow->zerocopy, number, number, (uint32_t)cqe->res & IORING_NOTIF_USAGE_ZC_COPIED,
				  zerocopy__is_timed(&flow->zerocopy, number) ? clock__now_ns() : 0, flow->completion_time);
	if (err)
		return failure__set(&flow->failure, err, "notification of request %u: reported twice or never "
				    "made, so it is unknown which buffers are free", number);
	return 0;
}

/* Process all completions in the queue. Store the result of the request of `outcome`, unless `outcome` is NULL. */
static int take_completions(struct flow *flow, struct outcome *outcome)
{
	struct uring *uring = flow->state;
	struct io_uring_cqe *cqe;
	unsigned int head, taken = 0;
	int err = 0;

	io_uring_for_each_cqe(&uring->ring, head, cqe) {
		taken++;
		if (cqe->flags & IORING_CQE_F_NOTIF) {
			err = take_notification(flow, cqe) ?: err;
		} else if (outcome && cqe->user_data == outcome->request) {
			outcome->ended = true;
			outcome->result = cqe->res;
			uring->refused = cqe->res < 0 && cqe->flags & IORING_CQE_F_MORE;
		}
	}
	io_uring_cq_advance(&uring->ring, taken);
	return err;
}

/* Submit a prepared request and wait for its result. Each turn is one call of io_uring_enter(), so that calls can be counted. */
static int submit(struct flow *flow, struct io_uring_sqe *sqe, struct outcome *outcome)
{
	struct uring *uring = flow->state;
	int err = 0;

	sqe->user_data = outcome->request;
	if (flow->issue == ISSUE_ASYNC)
		sqe->flags |= IOSQE_ASYNC;
	while (!err && !outcome->ended) {
		int entered = io_uring_submit_and_wait(&uring->ring, 1);

		flow->counts.ring_enters++;
		/* EBUSY: completions must be read first. EAGAIN: no memory for the request at this moment. */
		if (entered < 0 && entered != -EINTR && entered != -EBUSY && entered != -EAGAIN)
			return failure__set(&flow->failure, entered, "io_uring_enter: %s", strerror(-entered));
		err = take_completions(flow, outcome);
	}
	flow->counts.ring_requests++;
	return err;
}

/* Handle a refused request. Return 0 if it may be repeated, else -errno. */
static int handle_refusal(struct flow *flow, const struct outcome *outcome)
{
	errno = -outcome->result;
	return flow__send_failed(flow, "io_uring send");
}

static void prepare(struct io_uring_sqe *sqe, const struct flow *flow, const struct msghdr *header)
{
	/* Without MSG_WAITALL the request ends when the send buffer is full. kTLS refuses this flag. */
	const int flags = MSG_NOSIGNAL | (flow->encrypts ? 0 : MSG_WAITALL);

	if (header->msg_iovlen == 1) {
		io_uring_prep_send(sqe, flow->fd, header->msg_iov->iov_base, header->msg_iov->iov_len, flags);
		return;
	}
	io_uring_prep_sendmsg(sqe, flow->fd, header, flags);
}

/* Turn a prepared SEND or SENDMSG into its zero-copy version, which has its flags in the field `ioprio`. */
static void make_zerocopy(struct io_uring_sqe *sqe, const struct uring *uring)
{
	sqe->opcode = sqe->opcode == IORING_OP_SEND ? IORING_OP_SEND_ZC : IORING_OP_SENDMSG_ZC;
	sqe->ioprio = IORING_SEND_ZC_REPORT_USAGE;
	if (uring->registered) {
		sqe->ioprio |= IORING_RECVSEND_FIXED_BUF;
		sqe->buf_index = 0;
	}
}

int uring__send(struct flow *flow, struct message *message)
{
	struct msghdr left = { .msg_iov = message->fields, .msg_iovlen = flow->shape.fields };
	struct uring *uring = flow->state;
	size_t done = 0;

	for (;;) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
		struct outcome outcome = { .request = flow->counts.ring_requests };
		int err;

		prepare(sqe, flow, &left);
		err = submit(flow, sqe, &outcome);
		if (!err && outcome.result < 0)
			err = handle_refusal(flow, &outcome);
		if (err)
			return err;
		if (outcome.result >= 0 && !flow__advance(flow, message->fields, &done, outcome.result, &left))
			return 0;
	}
}

/* Wait for completions, at most `wait_ns`, and process them. */
static int wait_a_while(struct flow *flow, uint64_t wait_ns)
{
	struct uring *uring = flow->state;
	struct __kernel_timespec slice = { .tv_sec = wait_ns / NSEC_PER_SEC, .tv_nsec = wait_ns % NSEC_PER_SEC };
	struct io_uring_getevents_arg limit = { .ts = (uintptr_t)&slice };
	int entered = io_uring_enter2(uring->ring.ring_fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
				      (void *)&limit, sizeof(limit));

	flow->counts.ring_enters++;
	if (entered < 0 && entered != -EINTR && entered != -ETIME && entered != -EBUSY && entered != -EAGAIN)
		return failure__set(&flow->failure, entered, "io_uring_enter: %s", strerror(-entered));
	return take_completions(flow, NULL);
}

/* Wait until at least one zero-copy send of this connection is complete. */
static int wait_notification(struct flow *flow)
{
	uint64_t lost_at_ns = clock__now_ns() + LOST_NOTIFICATION_NS;
	uint64_t before = flow->zerocopy.counts.completions;
	struct pollfd errors = { .fd = flow->fd, .events = 0 };

	for (;;) {
		int err = wait_a_while(flow, WAIT_SLICE_NS);

		if (err || flow->zerocopy.counts.completions != before)
			return err;
		if (poll(&errors, 1, 0) < 0 || !(errors.revents & POLLHUP))
			lost_at_ns = clock__now_ns() + LOST_NOTIFICATION_NS;
		else if (clock__now_ns() > lost_at_ns)
			return failure__set(&flow->failure, -ECONNRESET, "the connection closed with %u "
					    "zero-copy sends in flight", flow->zerocopy.counts.in_flight);
	}
}

/*
 * Wait for memory after ENOMEM (the user's limit of locked memory) or ENOBUFS (the socket's limit), until a send in flight
 * completes.
 */
static int wait_memory(struct flow *flow, int result)
{
	struct uring *uring = flow->state;
	const struct timespec moment = { .tv_nsec = NSEC_PER_MSEC };
	struct flow *busy = flow__in_flight(flow);

	flow->zerocopy.counts.enobufs++;
	if (busy) {
		int err = wait_notification(busy);

		/* A failure of another connection is handled in that connection's next turn. */
		return busy == flow ? err : 0;
	}
	if (!uring->starved_ns)
		uring->starved_ns = clock__now_ns();
	else if (clock__now_ns() - uring->starved_ns > STARVED_NS)
		return failure__set(&flow->failure, result, "SEND_ZC: %s for %llu s with nothing in flight: the "
				    "limit of locked memory is %llu KiB for all processes of this user; raise it (ulimit -l) or "
				    "lower --size", strerror(-result), STARVED_NS / NSEC_PER_SEC,
				    (unsigned long long)memlock__limit_bytes() >> 10);
	nanosleep(&moment, NULL);
	return 0;
}

/*
 * Handle a refused zero-copy request. The request sent nothing, so the next request gets the same number. First read the
 * notification of the refused request, if there is one: it comes at once.
 */
static int handle_refusal_zc(struct flow *flow, const struct outcome *outcome)
{
	struct uring *uring = flow->state;
	int err = 0;

	while (!err && uring->refused)
		err = wait_a_while(flow, WAIT_SLICE_NS);
	if (err)
		return err;
	if (outcome->result == -ENOMEM || outcome->result == -ENOBUFS)
		return wait_memory(flow, outcome->result);
	return handle_refusal(flow, outcome);
}

int uring__send_zc(struct flow *flow, struct message *message)
{
	struct msghdr left = { .msg_iov = message->fields, .msg_iovlen = flow->shape.fields };
	struct uring *uring = flow->state;
	size_t done = 0;

	for (;;) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
		struct outcome outcome = { .request = flow->zerocopy.next };
		int err;

		prepare(sqe, flow, &left);
		make_zerocopy(sqe, uring);
		err = submit(flow, sqe, &outcome);
		if (!err && outcome.result < 0)
			err = handle_refusal_zc(flow, &outcome);
		if (err)
			return err;
		if (outcome.result < 0)
			continue;
		uring->starved_ns = 0;
		err = flow__sent_zerocopy(flow, &message->pending, outcome.result);
		if (err)
			return err;
		if (!flow__advance(flow, message->fields, &done, outcome.result, &left))
			return 0;
	}
}

int uring__reap(struct flow *flow, bool drain)
{
	return flow__reap(flow, drain, wait_notification);
}

/* Before the run, try a request on an unconnected socket. A kernel that supports the request reports the missing connection. */
static int try_zc(struct flow *flow)
{
	struct uring *uring = flow->state;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
	struct outcome outcome = { .request = 0 };
	char byte = 0;
	struct iovec fields[2] = { { &byte, 1 }, { &byte, 1 } };
	const struct msghdr header = { .msg_iov = fields, .msg_iovlen = flow->shape.fields > 1 ? 2 : 1 };
	struct iovec memory = { &byte, 1 };
	int err;

	if (flow->shape.in_arena) {
		err = io_uring_register_buffers(&uring->ring, &memory, 1);
		if (err)
			return failure__set(&flow->failure, err, "--registered: %s; raise the limit of locked memory (ulimit "
					    "-l), or leave --registered out", strerror(-err));
		uring->registered = true;
	}
	prepare(sqe, flow, &header);
	make_zerocopy(sqe, uring);
	err = submit(flow, sqe, &outcome);
	if (err || (outcome.result != -EINVAL && outcome.result != -EOPNOTSUPP))
		return err;
	if (flow->shape.in_arena && flow->shape.fields > 1)
		return failure__set(&flow->failure, -EOPNOTSUPP, "--registered: with %u fields, this kernel's SENDMSG_ZC accepts "
				    "no registered buffers (Linux 6.15 does); use --fields 1, or leave --registered out",
				    flow->shape.fields);
	return failure__set(&flow->failure, -EOPNOTSUPP, "%s: this kernel does not report whether it "
			    "copied (6.2 and newer do); use --impl zero_copy or uring_send",
			    flow->shape.fields > 1 ? "SENDMSG_ZC" : "SEND_ZC");
}

static int register_messages(struct flow *flow)
{
	struct uring *uring = flow->state;
	const struct iovec memory = { flow->arena, flow->arena_bytes };
	int err;

	if (flow->arena_bytes > REGISTERED_MAX)
		return failure__set(&flow->failure, -EINVAL, "--registered: %zu MiB of messages, io_uring registers at most "
				    "1 GiB; lower --working-set or --size", flow->arena_bytes >> 20);
	err = io_uring_register_buffers(&uring->ring, &memory, 1);
	if (err)
		return failure__set(&flow->failure, err, "--registered: cannot register %zu KiB of messages: %s; the limit of "
				    "locked memory is %llu KiB for all processes of this user: raise it (ulimit -l) or lower --size",
				    flow->arena_bytes >> 10, strerror(-err),
				    (unsigned long long)memlock__limit_bytes() >> 10);
	uring->registered = true;
	return 0;
}

int uring__open_zc(struct flow *flow)
{
	int err = flow->shape.in_arena ? 0 : memlock__check(flow->shape.size_bytes, &flow->failure);

	if (!err)
		err = uring__open(flow);
	if (err)
		return err;
	/* flow->rest is NULL only in the trial before the run, where there are no messages. */
	if (!flow->rest)
		err = try_zc(flow);
	else if (flow->shape.in_arena)
		err = register_messages(flow);
	if (!err)
		err = zerocopy__open(&flow->zerocopy, flow->shape.slots);
	if (err) {
		uring__close(flow);
		return failure__set(&flow->failure, err, "zero-copy: cannot allocate accounts for %u sends: %s", flow->shape.slots,
				    strerror(-err));
	}
	return 0;
}

void uring__close_zc(struct flow *flow)
{
	zerocopy__close(&flow->zerocopy);
	uring__close(flow);
}

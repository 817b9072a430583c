// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <time.h>		/* linux/errqueue.h needs struct timespec */
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "memory.h"
#include "zerocopy_socket.h"

#define WAIT_SLICE_MS 100
/* No completion for so long on a connection that is gone: it will not come. */
#define LOST_COMPLETION_NS (1 * NSEC_PER_SEC)
/* ENOBUFS for so long while nothing of this process completes: others hold the budget. */
#define STARVED_NS (2 * NSEC_PER_SEC)
#define BUDGET_WAIT_NS (1 * NSEC_PER_MSEC)

/*
 * The memlock budget belongs to the user, so a thread with nothing in flight can be refused because
 * of the others'. It then waits here for any thread of this process to reap; but what the thread
 * itself has in flight on other connections is reaped by nobody else.
 */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t reaped;
	atomic_uint waiters;
	uint64_t reaps;		/* counted only while somebody waits */
} budget = { .lock = PTHREAD_MUTEX_INITIALIZER, .reaped = PTHREAD_COND_INITIALIZER };

static void budget__signal(void)
{
	/* A waiter missed here wakes by itself after BUDGET_WAIT_NS. */
	if (!atomic_load_explicit(&budget.waiters, memory_order_relaxed))
		return;
	pthread_mutex_lock(&budget.lock);
	budget.reaps++;
	pthread_cond_broadcast(&budget.reaped);
	pthread_mutex_unlock(&budget.lock);
}

/* Wait for a reap, not longer than BUDGET_WAIT_NS. Returns the number of reaps so far. */
static uint64_t budget__wait(void)
{
	uint64_t until_ns, reaps;
	struct timespec until;

	pthread_mutex_lock(&budget.lock);
	atomic_fetch_add(&budget.waiters, 1);
	until_ns = clock__now_ns() + BUDGET_WAIT_NS;
	until.tv_sec = until_ns / NSEC_PER_SEC;
	until.tv_nsec = until_ns % NSEC_PER_SEC;
	pthread_cond_clockwait(&budget.reaped, &budget.lock, CLOCK_MONOTONIC, &until);
	atomic_fetch_sub(&budget.waiters, 1);
	reaps = budget.reaps;
	pthread_mutex_unlock(&budget.lock);
	return reaps;
}

int zerocopy_socket__open(struct flow *flow)
{
	int on = 1;
	int err = memlock__check(flow->shape.size_bytes, &flow->failure);

	if (err)
		return err;
	if (setsockopt(flow->fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)))
		return failure__set(&flow->failure, -errno,
			"SO_ZEROCOPY: TCP socket: %s: this kernel cannot send without a copy "
			"(Linux 4.14 can); choose another --impl", strerror(errno));
	err = zerocopy__open(&flow->zerocopy, flow->shape.slots);
	if (err)
		return failure__set(&flow->failure, err, "zero-copy accounts: %u calls: %s",
				    flow->shape.slots, strerror(-err));
	return 0;
}

void zerocopy_socket__close(struct flow *flow)
{
	zerocopy__close(&flow->zerocopy);
}

static const struct sock_extended_err *notification_of(struct msghdr *header)
{
	for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR(header, part)) {
		const struct sock_extended_err *error = (const void *)CMSG_DATA(part);

		if (((part->cmsg_level == SOL_IP && part->cmsg_type == IP_RECVERR) ||
		     (part->cmsg_level == SOL_IPV6 && part->cmsg_type == IPV6_RECVERR)) &&
		    error->ee_origin == SO_EE_ORIGIN_ZEROCOPY)
			return error;
	}
	return NULL;
}

/* Read the error queue until it is empty. The number of notifications, or -errno. */
static int read_notifications(struct flow *flow)
{
	struct zerocopy *zerocopy = &flow->zerocopy;
	int count = 0;

	/* With nothing in flight nothing can come: do not ask once more just to be told so. */
	while (zerocopy->counts.in_flight) {
		_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct sock_extended_err) +
								 sizeof(struct sockaddr_in6))];
		struct msghdr header = { .msg_control = control, .msg_controllen = sizeof(control) };
		const struct sock_extended_err *error;
		int err;

		zerocopy->counts.errqueue_reads++;
		if (recvmsg(flow->fd, &header, MSG_ERRQUEUE) < 0) {
			if (errno == EAGAIN)
				break;
			if (errno == EINTR)
				continue;
			return failure__set(&flow->failure, -errno, "recvmsg: error queue: %s",
					    strerror(errno));
		}
		error = notification_of(&header);
		if (!error)
			continue;
		err = zerocopy__completed(zerocopy, error->ee_info, error->ee_data,
					  error->ee_code & SO_EE_CODE_ZEROCOPY_COPIED,
					  clock__now_ns(), flow->completion_time);
		if (err)
			return failure__set(&flow->failure, err,
				"completions: calls %u..%u: reported twice or never made: it is "
				"not known any more which buffers are free", error->ee_info, error->ee_data);
		count++;
	}
	if (count)
		budget__signal();
	return count;
}

/* Wait until at least one call of this socket completes. */
static int wait_notification(struct flow *flow)
{
	uint64_t lost_at_ns = clock__now_ns() + LOST_COMPLETION_NS;

	for (;;) {
		struct pollfd errors = { .fd = flow->fd, .events = 0 };
		int count = read_notifications(flow);

		if (count)
			return count < 0 ? count : 0;
		poll(&errors, 1, WAIT_SLICE_MS);
		if (!(errors.revents & POLLHUP)) {
			lost_at_ns = clock__now_ns() + LOST_COMPLETION_NS;
			continue;
		}
		/* Gone: what was in flight is being freed and still reported; POLLHUP does not wait. */
		if (clock__now_ns() > lost_at_ns)
			return failure__set(&flow->failure, -ECONNRESET,
				"completions: connection: it closed with %u zero-copy sends in flight",
				flow->zerocopy.counts.in_flight);
		poll(NULL, 0, 1);
	}
}

/* ENOBUFS: memlock or optmem is used up. Wait for what holds it, never for a guess. */
static int wait_budget(struct flow *flow)
{
	uint64_t started_ns = clock__now_ns();
	struct flow *busy = flow__in_flight(flow);
	uint64_t reaps;

	flow->zerocopy.counts.enobufs++;
	if (busy) {
		int err = wait_notification(busy);

		/* What goes wrong on another connection is its own failure, and found at its next turn. */
		return busy == flow ? err : 0;
	}
	reaps = budget__wait();
	if (flow->starved_ns && flow->starved_reaps == reaps) {
		if (started_ns - flow->starved_ns > STARVED_NS)
			return failure__set(&flow->failure, -ENOBUFS,
				"sendmsg: MSG_ZEROCOPY: ENOBUFS for %llu s with nothing in flight: other "
				"processes of this user use up the memlock limit (%llu KiB), or "
				"net.core.optmem_max is too low: raise ulimit -l",
				STARVED_NS / NSEC_PER_SEC,
				(unsigned long long)memlock__limit_bytes() >> 10);
		return 0;
	}
	flow->starved_ns = started_ns;
	flow->starved_reaps = reaps;
	return 0;
}

int zerocopy_socket__send(struct flow *flow, const struct iovec *fields, uint32_t *pending)
{
	struct msghdr header = { .msg_iov = (struct iovec *)fields, .msg_iovlen = flow->shape.fields };
	size_t done = 0;
	int err;

	for (;;) {
		ssize_t sent = sendmsg(flow->fd, &header, MSG_ZEROCOPY | MSG_NOSIGNAL);

		flow->counts.sendmsg_calls++;
		if (sent < 0) {
			err = errno == ENOBUFS ? wait_budget(flow) : flow__send_failed(flow, "sendmsg");
			/* Unread notifications would keep poll() from waiting for room. */
			if (!err)
				err = read_notifications(flow);
			if (err < 0)
				return err;
			continue;
		}
		err = flow__sent_zerocopy(flow, pending, sent);
		if (err)
			return err;
		flow->starved_ns = 0;
		if (!flow__advance(flow, fields, &done, sent, &header))
			break;
	}
	if (flow->wait != NOTICES_NEVER && flow->counts.messages % ((flow->shape.slots + 3) / 4) == 0) {
		err = read_notifications(flow);
		return err < 0 ? err : 0;
	}
	return 0;
}

int zerocopy_socket__reap(struct flow *flow, bool drain)
{
	return flow__reap(flow, drain, wait_notification);
}

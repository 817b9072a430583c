// SPDX-License-Identifier: GPL-2.0-only
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
/* Time limit for the next notification of a closed connection. */
#define LOST_COMPLETION_NS (1 * NSEC_PER_SEC)
/* Time limit for sends that get ENOBUFS while no send of this process completes: other processes hold the locked memory. */
#define STARVED_NS (2 * NSEC_PER_SEC)
#define BUDGET_WAIT_NS (1 * NSEC_PER_MSEC)

/*
 * All threads share the user's budget of locked memory, so the kernel may refuse a send of a thread that has nothing in flight.
 * The refused thread waits until another thread of this process has read notifications. A thread with sends in flight on
 * other connections must read the notifications of these sends itself, because no other thread does.
 */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t reaped;
	atomic_uint waiters;
	uint64_t reaps;		/* times that notifications were read; counted only while a thread waits */
} budget = { .lock = PTHREAD_MUTEX_INITIALIZER, .reaped = PTHREAD_COND_INITIALIZER };

static void budget__signal(void)
{
	/* If this load misses a new waiter, the waiter's timeout wakes it after BUDGET_WAIT_NS. */
	if (!atomic_load_explicit(&budget.waiters, memory_order_relaxed))
		return;
	pthread_mutex_lock(&budget.lock);
	budget.reaps++;
	pthread_cond_broadcast(&budget.reaped);
	pthread_mutex_unlock(&budget.lock);
}

/* Wait until another thread has read notifications, at most BUDGET_WAIT_NS. Return budget.reaps. */
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
			"SO_ZEROCOPY: %s: this kernel has no MSG_ZEROCOPY "
			"(Linux 4.14 and newer do); choose another --impl", strerror(errno));
	err = zerocopy__open(&flow->zerocopy, flow->shape.slots);
	if (err)
		return failure__set(&flow->failure, err, "zero-copy: cannot allocate accounts for %u sends: %s",
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

/* Read the error queue until the queue is empty. Return the number of notifications, or -errno. */
static int read_notifications(struct flow *flow)
{
	struct zerocopy *zerocopy = &flow->zerocopy;
	int count = 0;

	/* Stop when nothing is in flight, which saves a last recvmsg() that would find nothing. */
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
			return failure__set(&flow->failure, -errno, "cannot read the error queue: %s",
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
				"notification of calls %u to %u: reported twice or never made, so it is "
				"unknown which buffers are free", error->ee_info, error->ee_data);
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
		/* The connection is closed. The kernel still reports its sends while it frees them, but poll() no longer waits. */
		if (clock__now_ns() > lost_at_ns)
			return failure__set(&flow->failure, -ECONNRESET,
				"the connection closed with %u zero-copy sends in flight",
				flow->zerocopy.counts.in_flight);
		poll(NULL, 0, 1);
	}
}

/* Wait after ENOBUFS, because locked memory or option memory is used up, until a send in flight completes. */
static int wait_budget(struct flow *flow)
{
	uint64_t started_ns = clock__now_ns();
	struct flow *busy = flow__in_flight(flow);
	uint64_t reaps;

	flow->zerocopy.counts.enobufs++;
	if (busy) {
		int err = wait_notification(busy);

		/* A failure of another connection is handled in that connection's next turn. */
		return busy == flow ? err : 0;
	}
	reaps = budget__wait();
	if (flow->starved_ns && flow->starved_reaps == reaps) {
		if (started_ns - flow->starved_ns > STARVED_NS)
			return failure__set(&flow->failure, -ENOBUFS,
				"MSG_ZEROCOPY: ENOBUFS for %llu s with nothing in flight: other "
				"processes of this user use up the memlock limit (%llu KiB), or "
				"net.core.optmem_max is too low; raise ulimit -l or net.core.optmem_max",
				STARVED_NS / NSEC_PER_SEC,
				(unsigned long long)memlock__limit_bytes() >> 10);
		return 0;
	}
	flow->starved_ns = started_ns;
	flow->starved_reaps = reaps;
	return 0;
}

int zerocopy_socket__send(struct flow *flow, struct message *message)
{
	struct msghdr header = { .msg_iov = message->fields, .msg_iovlen = flow->shape.fields };
	size_t done = 0;
	int err;

	for (;;) {
		ssize_t sent = sendmsg(flow->fd, &header, MSG_ZEROCOPY | MSG_NOSIGNAL);

		flow->counts.sendmsg_calls++;
		if (sent < 0) {
			err = errno == ENOBUFS ? wait_budget(flow) : flow__send_failed(flow, "sendmsg");
			/* Read all notifications, because poll() does not wait for room while a notification is unread. */
			if (!err)
				err = read_notifications(flow);
			if (err < 0)
				return err;
			continue;
		}
		err = flow__sent_zerocopy(flow, &message->pending, sent);
		if (err)
			return err;
		flow->starved_ns = 0;
		if (!flow__advance(flow, message->fields, &done, sent, &header))
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

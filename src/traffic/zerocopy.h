/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_ZEROCOPY_H
#define TRAFFIC_ZEROCOPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "histogram.h"

/*
 * Accounts of the zero-copy sends of one socket: which calls still refer to their memory. The kernel numbers the calls that
 * accepted at least one byte (u32, wrapping; failed calls get no number), and its notifications report ranges of completed
 * numbers. Notifications may be merged, arrive in any order, and even arrive before zerocopy__sent() is called for them. This
 * file has no system calls: zerocopy_socket.c and uring.c call it.
 */
enum zerocopy_state {
	ZEROCOPY_FREE,
	ZEROCOPY_IN_FLIGHT,
	ZEROCOPY_EARLY,		/* the notification came before zerocopy__sent() was called */
};

struct zerocopy_call {
	uint32_t *pending;	/* counter of the message that the call sent; NULL: nothing waits for the notification */
	uint64_t sent_ns;	/* time of the call; 0: not timed */
	uint32_t bytes;
	uint32_t early_copied;	/* ZEROCOPY_EARLY: the notification says that the kernel copied */
	enum zerocopy_state state;
};

struct zerocopy_counts {
	uint64_t sends;
	uint64_t bytes_sent;
	uint64_t completions;	/* completed calls; a notification may report several */
	uint64_t copied;	/* completed calls whose bytes the kernel copied */
	uint64_t bytes_copied;
	uint64_t notifications;
	uint64_t enobufs;
	uint64_t errqueue_reads;
	uint64_t waits;		/* times that the sender waited for a notification before the next message */
	uint64_t wait_ns;
	uint32_t in_flight;
	uint32_t max_in_flight;
};

struct zerocopy {
	uint32_t next;		/* number of the next successful call */
	uint32_t oldest;	/* all calls with lower numbers are complete */
	uint32_t capacity;	/* entries of `calls`, a power of two */
	struct zerocopy_call *calls;
	struct zerocopy_counts counts;
};

int zerocopy__open(struct zerocopy *zerocopy, uint32_t capacity);
void zerocopy__close(struct zerocopy *zerocopy);

/*
 * Account for a call that accepted `bytes`, and raise `*pending` unless `pending` is NULL. If `sent_ns` is 0, the
 * completion is not timed. Return 0 or -ENOMEM.
 */
int zerocopy__sent(struct zerocopy *zerocopy, uint32_t *pending, uint32_t bytes, uint64_t sent_ns);
/*
 * Return true if the completion of this call is to be timed. Only some calls are timed, because reading the clock slows
 * small sends.
 */
static inline bool zerocopy__is_timed(const struct zerocopy *zerocopy, uint32_t number)
{
	return zerocopy->calls[number & (zerocopy->capacity - 1)].sent_ns;
}

/*
 * Account for a notification of the calls low to high. Return -EPROTO if the notification reports a call twice or a call that
 * cannot exist: from then on the sender does not know which memory is free.
 */
int zerocopy__completed(struct zerocopy *zerocopy, uint32_t low, uint32_t high, bool copied,
			uint64_t now_ns, struct histogram *completion_time);

#endif

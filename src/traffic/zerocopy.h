/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_ZEROCOPY_H
#define TRAFFIC_ZEROCOPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "histogram.h"

/*
 * Which MSG_ZEROCOPY calls of one socket still own their memory. The kernel numbers the calls that
 * accepted at least one byte (u32, wrapping; failed calls get no number) and reports completions as
 * ranges of these numbers. Ranges coalesce, may arrive in any order, and even before send() has
 * returned to the caller who counts. No sockets in here: zerocopy_socket.c feeds it.
 */
enum zerocopy_state {
	ZEROCOPY_FREE,
	ZEROCOPY_IN_FLIGHT,
	ZEROCOPY_EARLY,		/* completed, but the call is not registered yet */
};

struct zerocopy_call {
	uint32_t *pending;	/* of the message it refers to; NULL: nobody waits for it */
	uint64_t sent_ns;	/* 0: not timed */
	uint32_t bytes;
	uint32_t early_copied;	/* what the notification of an early one said */
	enum zerocopy_state state;
};

struct zerocopy_counts {
	uint64_t sends;
	uint64_t bytes_sent;
	uint64_t completions;	/* calls, not notifications */
	uint64_t copied;	/* calls whose data the kernel copied after all */
	uint64_t bytes_copied;
	uint64_t notifications;
	uint64_t enobufs;
	uint64_t errqueue_reads;
	uint64_t waits;		/* for a notice, before the next message could be sent */
	uint64_t wait_ns;
	uint32_t in_flight;
	uint32_t max_in_flight;
};

struct zerocopy {
	uint32_t next;		/* number of the next call that succeeds */
	uint32_t oldest;	/* no call before this one is in flight */
	uint32_t capacity;	/* a power of two */
	struct zerocopy_call *calls;
	struct zerocopy_counts counts;
};

int zerocopy__open(struct zerocopy *zerocopy, uint32_t capacity);
void zerocopy__close(struct zerocopy *zerocopy);

/* A call accepted `bytes`. 0 or -ENOMEM. */
int zerocopy__sent(struct zerocopy *zerocopy, uint32_t *pending, uint32_t bytes, uint64_t sent_ns);
/* Whether the time of its completion is wanted: a call of the clock for each of them is a part of what small sends cost. */
static inline bool zerocopy__is_timed(const struct zerocopy *zerocopy, uint32_t number)
{
	return zerocopy->calls[number & (zerocopy->capacity - 1)].sent_ns;
}

/*
 * A notification for the calls low..high. -EPROTO when it names a call twice or one that cannot
 * exist: the account of who owns which memory would be wrong from there on.
 */
int zerocopy__completed(struct zerocopy *zerocopy, uint32_t low, uint32_t high, bool copied,
			uint64_t now_ns, struct histogram *completion_time);

#endif

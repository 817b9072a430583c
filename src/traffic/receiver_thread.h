/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_RECEIVER_THREAD_H
#define TRAFFIC_RECEIVER_THREAD_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "options.h"
#include "pattern.h"
#include "reading.h"
#include "report.h"

/*
 * What a thread has read. One writer, any readers, plain loads and stores. `bytes` is published last
 * and read first: who has seen it also sees what else these bytes have changed.
 */
struct receive_counts {
	atomic_uint_fast64_t bytes;
	atomic_uint_fast64_t calls;		/* that returned data */
	atomic_uint_fast64_t truncated_bytes;	/* dropped by the kernel instead of copied */
	atomic_uint_fast64_t mapped_calls;	/* of TCP_ZEROCOPY_RECEIVE that took something */
	atomic_uint_fast64_t mapped_bytes;
	atomic_uint_fast64_t beside_bytes;	/* copied by these calls */
	atomic_uint_fast64_t spliced_bytes;	/* into a pipe: by all calls, or by none */
	atomic_uint_fast64_t ring_requests;
	atomic_uint_fast64_t ring_enters;
	atomic_uint_fast64_t replies;
	atomic_uint_fast64_t checked_bytes;
	atomic_uint_fast64_t wrong_bytes;
	atomic_uint_fast64_t first_wrong_offset;
};

static inline uint64_t count__get(const atomic_uint_fast64_t *count)
{
	return atomic_load_explicit(count, memory_order_relaxed);
}

static inline void count__set(atomic_uint_fast64_t *count, uint64_t value)
{
	atomic_store_explicit(count, value, memory_order_relaxed);
}

/* By the one who writes. */
static inline void count__add(atomic_uint_fast64_t *count, uint64_t more)
{
	count__set(count, count__get(count) + more);
}

/* The read buffer and the pieces that recvmsg fills. */
struct destination {
	char *buffer;
	struct iovec *pieces;
	unsigned int count;
};

/* Without memory it says so in `failure`. */
int destination__open(struct destination *to, const struct options *options, struct failure *failure);
void destination__close(struct destination *to);

/* One connection and the thread that reads it: its own, or one for all (reading.start). */
struct receiver_thread {
	struct receive_counts counts;
	int fd;
	struct destination to;		/* of a thread of its own */
	void *state;			/* reading.open */
	uint64_t first_ns;		/* when data came first and last */
	uint64_t last_ns;
	atomic_uint_fast64_t settled_ns;	/* when these bytes were known to be all of a segment's */
	atomic_uint_fast64_t settled_bytes;
	struct stream_check check;
	const struct options *options;
	atomic_bool *stopping;
	int event_fd;			/* readable when it has ended */
	unsigned int index;
	pthread_t thread;
	bool has_thread;
	atomic_bool ended;
	bool announced;			/* its failure, by the one who controls */
	struct failure failure;
	struct thread_summary summary;
} __attribute__((aligned(128)));

/* Takes the descriptor. */
void receiver_thread__init(struct receiver_thread *thread, const struct options *options,
			   unsigned int index, int fd, int event_fd, atomic_bool *stopping);
/* Read in a thread of its own: 0 or -errno. */
int receiver_thread__start(struct receiver_thread *thread);
void receiver_thread__join(struct receiver_thread *thread);
void receiver_thread__free(struct receiver_thread *thread);

/* Before the run: would the kernel do it? On a socket that is not connected. 0 or -errno. */
int receiver_thread__try(const struct options *options, int fd, struct failure *failure);

/* What a call that is like read(2) returned, as reading.receive says it. */
static inline int arrival__of_call(struct arrival *arrival, const char *from, ssize_t got)
{
	if (got < 0)
		return -errno;
	arrival->from = from;
	arrival->bytes = got;
	return got > 0;
}

/* We were interrupted, and the connection was shut down under whoever reads it: what goes wrong now is no failure. */
static inline bool receiver_thread__is_stopping(const struct receiver_thread *thread)
{
	return atomic_load_explicit(thread->stopping, memory_order_relaxed);
}

/* For whoever reads the connection: this came. 0 or -errno. */
int receiver_thread__account(struct receiver_thread *thread, const struct arrival *arrival);
/* It is over, with this error; nobody reads it any more. */
void receiver_thread__finish(struct receiver_thread *thread, int err);

/* Whoever knows that nothing is under way says so. */
void receiver_thread__settled(struct receiver_thread *thread);

static inline uint64_t receiver_thread__bytes(const struct receiver_thread *thread)
{
	return atomic_load_explicit(&thread->counts.bytes, memory_order_acquire);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_RECEIVER_THREAD_H
#define TRAFFIC_RECEIVER_THREAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "options.h"
#include "pattern.h"
#include "report.h"
#include "slices.h"

/*
 * What a thread has read. One writer, any readers, plain loads and stores. `bytes` is published last
 * and read first: who has seen it also sees what else these bytes have changed.
 */
struct receive_counts {
	atomic_uint_fast64_t bytes;
	atomic_uint_fast64_t calls;		/* that returned data */
	atomic_uint_fast64_t truncated_bytes;	/* dropped by the kernel instead of copied */
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

/* The read buffer and the pieces that recvmsg fills. */
struct destination {
	char *buffer;
	struct iovec *pieces;
	unsigned int count;
};

/* Without memory it says so in `failure`. */
int destination__open(struct destination *to, const struct options *options, struct failure *failure);
void destination__close(struct destination *to);

/* One connection and the thread that reads it: its own, or one for all (receiver_poll.h). */
struct receiver_thread {
	struct receive_counts counts;
	int fd;
	uint64_t unplaced_calls;
	uint64_t first_ns;		/* when data came first and last */
	uint64_t last_ns;
	atomic_uint_fast64_t settled_ns;	/* when these bytes were known to be all of a segment's */
	atomic_uint_fast64_t settled_bytes;
	struct stream_check check;
	struct slices slices;
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

/* For whoever reads the connection: `got` bytes came to `from`. 0 or -errno. */
int receiver_thread__account(struct receiver_thread *thread, const char *from, size_t got);
/* It is over, with this error; nobody reads it any more. */
void receiver_thread__finish(struct receiver_thread *thread, int err);

/* Whoever knows that nothing is under way says so. */
void receiver_thread__settled(struct receiver_thread *thread);

static inline uint64_t receiver_thread__bytes(const struct receiver_thread *thread)
{
	return atomic_load_explicit(&thread->counts.bytes, memory_order_acquire);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_RECEIVER_THREAD_H
#define TRAFFIC_RECEIVER_THREAD_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "gate.h"
#include "options.h"
#include "pattern.h"
#include "reading.h"
#include "report.h"

/*
 * Counters of one connection. One thread writes, any thread reads, without a lock. `bytes` is stored last (release) and loaded
 * first (acquire): a thread that has seen a value of `bytes` also sees the other counters for these bytes.
 */
struct receive_counts {
	atomic_uint_fast64_t bytes;
	atomic_uint_fast64_t calls;		/* receive calls that returned data */
	atomic_uint_fast64_t truncated_bytes;	/* bytes that the kernel dropped (MSG_TRUNC) */
	atomic_uint_fast64_t mapped_calls;	/* successful calls of TCP_ZEROCOPY_RECEIVE */
	atomic_uint_fast64_t mapped_bytes;	/* bytes that TCP_ZEROCOPY_RECEIVE mapped */
	atomic_uint_fast64_t beside_bytes;	/* bytes that TCP_ZEROCOPY_RECEIVE copied, because they did not fill a page */
	atomic_uint_fast64_t spliced_bytes;	/* bytes spliced into a pipe */
	atomic_uint_fast64_t ring_requests;	/* io_uring requests */
	atomic_uint_fast64_t ring_enters;	/* calls of io_uring_enter() */
	atomic_uint_fast64_t replies;		/* answers sent (--mode rr) */
	atomic_uint_fast64_t old_bytes;		/* bytes with the value REWRITE_OLD (--rewrite) */
	atomic_uint_fast64_t new_bytes;		/* bytes with the value REWRITE_NEW */
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

/* Add to a counter. Only the thread that writes the counter may call this function. */
static inline void count__add(atomic_uint_fast64_t *count, uint64_t more)
{
	count__set(count, count__get(count) + more);
}

/* Receive buffer, and the pieces of the buffer that recvmsg() fills. */
struct destination {
	char *buffer;
	struct iovec *pieces;
	unsigned int count;
};

/* Allocate the receive buffer. Return 0, or -ENOMEM with the reason in `failure`. */
int destination__open(struct destination *to, const struct options *options, struct failure *failure);
void destination__close(struct destination *to);

/* A connection of the receiver. Each connection has a thread, unless reading.start made one thread for all connections. */
struct receiver_thread {
	struct receive_counts counts;
	int fd;
	struct destination to;		/* unused if one thread reads all connections */
	void *state;			/* private data of the reading, created by its open() */
	uint64_t first_ns;		/* time of the first data */
	uint64_t last_ns;		/* time of the last data */
	atomic_uint_fast64_t settled_ns;	/* time of the last `settle` */
	atomic_uint_fast64_t settled_bytes;	/* bytes received at the time of the last `settle` */
	struct stream_check check;
	const struct options *options;
	atomic_bool *stopping;
	struct gate *gate;		/* gate that must open before the thread reads; NULL: the thread reads at once */
	int event_fd;			/* eventfd that is signalled when the connection ends */
	unsigned int index;
	pthread_t thread;
	bool has_thread;
	atomic_bool ended;
	bool announced;			/* the controlling thread has reported the failure */
	struct failure failure;
	struct thread_summary summary;
} __attribute__((aligned(128)));

/* Prepare a connection on `fd`; receiver_thread__free() closes it. */
void receiver_thread__init(struct receiver_thread *thread, const struct options *options,
			   unsigned int index, int fd, int event_fd, atomic_bool *stopping);
/* Start a thread that reads the connection. Return 0 or -errno. */
int receiver_thread__start(struct receiver_thread *thread);
void receiver_thread__join(struct receiver_thread *thread);
void receiver_thread__free(struct receiver_thread *thread);

/* Before the run, try the reading on an unconnected socket. Return 0, or -errno with the reason in `failure`. */
int receiver_thread__try(const struct options *options, int fd, struct failure *failure);

/* Convert the result of a call that returns like read(2) to the result of reading.receive. */
static inline int arrival__of_call(struct arrival *arrival, const char *from, ssize_t got)
{
	if (got < 0)
		return -errno;
	arrival->from = from;
	arrival->bytes = got;
	return got > 0;
}

/* Return true after a signal has shut down the connections, because reads are then expected to fail. */
static inline bool receiver_thread__is_stopping(const struct receiver_thread *thread)
{
	return atomic_load_explicit(thread->stopping, memory_order_relaxed);
}

/* Account for received bytes, check and answer them if the options say so. Called by the reading thread. Return 0 or -errno. */
int receiver_thread__account(struct receiver_thread *thread, const struct arrival *arrival);
/* End the connection: summarise it, and wake the controlling thread. `err` is the error of the last read, or 0. */
void receiver_thread__finish(struct receiver_thread *thread, int err);

/* Record that all bytes of a segment have been received. Called by the controlling thread. */
void receiver_thread__settled(struct receiver_thread *thread);

static inline uint64_t receiver_thread__bytes(const struct receiver_thread *thread)
{
	return atomic_load_explicit(&thread->counts.bytes, memory_order_acquire);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_SENDER_THREAD_H
#define TRAFFIC_SENDER_THREAD_H

#include <pthread.h>

#include "flow.h"
#include "gate.h"
#include "options.h"
#include "report.h"

/* State that all threads in a simulated machine share, because one thread starts and stops the counting for all threads. */
struct together {
	pthread_barrier_t all;
	atomic_bool cut_short;		/* a thread did not send all its messages */
};

/*
 * A connection of the sender. Each connection has a sending thread, unless one thread sends on all connections (sender_loop.h).
 * The sending thread writes this struct without a lock; other threads read the struct while that thread is parked. The alignment
 * prevents two threads from sharing a cache line (128 bytes, because x86 fetches lines in pairs).
 */
struct sender_thread {
	struct flow flow;
	struct ring ring;
	uint64_t messages_left;
	uint64_t until_timed;		/* messages up to and including the next timed message */
	uint64_t window_left;		/* messages after the timed message in its window of time_every messages */
	uint64_t random;
	const struct options *options;
	struct gate *gate;
	struct together *together;
	unsigned int index;
	bool prepared;			/* the messages are allocated and the strategy is open */
	bool finished;
	bool has_thread;
	bool joined;
	int err;			/* -errno of the first failure; 0: none */
	atomic_bool failed;		/* flow.failure has the reason and does not change any more */
	bool announced;			/* the controlling thread has reported the failure */
	pthread_t thread;
	uint64_t arrived_ns;		/* --rewrite arrived: time from the return of the last send to its acknowledgement */
	struct thread_summary summary;
	struct histogram send_time;
	struct histogram completion_time;
	struct histogram round_trip;
} __attribute__((aligned(128)));

/* Prepare a connection on `fd`; sender_thread__finish() closes it. */
void sender_thread__init(struct sender_thread *thread, const struct options *options,
			 struct gate *gate, struct together *together, unsigned int index, int fd);
/* Start a thread that sends on the connection. Return 0 or -errno. */
int sender_thread__start(struct sender_thread *thread);
/* Wait for the end of the thread, after the gate has dismissed it. Close a connection that no thread has used. */
void sender_thread__join(struct sender_thread *thread);

/*
 * The next four functions are called by the sending thread, in this order. A failure is stored: `failed` is set for the
 * controlling thread, and sender_thread__has_more() is false from then on.
 */
/* Pin the calling thread to CPU number `cpu_index` of --cpus, allocate the messages, and open the strategy. */
void sender_thread__prepare(struct sender_thread *thread, unsigned int cpu_index);
void sender_thread__send_next(struct sender_thread *thread);
/* Wait until all bytes are acknowledged and all notifications are read. */
void sender_thread__rest(struct sender_thread *thread);
void sender_thread__finish(struct sender_thread *thread);

/*
 * Return the CPU time of the connection's thread; 0 if another connection's thread sends on this connection. Call this function
 * only while the thread is parked or has ended.
 */
int64_t sender_thread__cpu_ns(const struct sender_thread *thread);

static inline bool sender_thread__has_more(const struct sender_thread *thread)
{
	return !thread->err && thread->messages_left;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_SENDER_THREAD_H
#define TRAFFIC_SENDER_THREAD_H

#include <pthread.h>

#include "flow.h"
#include "gate.h"
#include "options.h"
#include "report.h"

/* What threads that a simulator counts have in common: one says for all where counting begins and ends. */
struct together {
	pthread_barrier_t all;
	atomic_bool cut_short;
};

/*
 * One connection and the thread that sends on it: its own, or one for all (sender_loop.h). The thread
 * writes all of this without a lock; others read it while the thread is parked. Aligned so that no two threads share a cache line (128:
 * x86 fetches lines in pairs).
 */
struct sender_thread {
	struct flow flow;
	struct ring ring;
	uint64_t messages_left;
	uint64_t until_timed;		/* messages until the next timed one, itself included */
	uint64_t window_left;		/* of the current window of time_every messages, after it */
	uint64_t random;
	const struct options *options;
	struct gate *gate;
	struct together *together;
	unsigned int index;
	bool prepared;			/* its messages are there, its strategy is open */
	bool finished;
	bool has_thread;
	bool joined;
	int err;			/* 0 while all is well */
	atomic_bool failed;		/* the reason in flow.failure is final */
	bool announced;			/* its failure, by the one who controls */
	pthread_t thread;
	struct thread_summary summary;
	struct histogram send_time;
	struct histogram completion_time;
	struct histogram round_trip;
} __attribute__((aligned(128)));

/* Takes the descriptor. */
void sender_thread__init(struct sender_thread *thread, const struct options *options,
			 struct gate *gate, struct together *together, unsigned int index, int fd);
/* Send in a thread of its own: 0 or -errno. */
int sender_thread__start(struct sender_thread *thread);
/* After the gate has dismissed it. A connection that nobody ever sent on is closed. */
void sender_thread__join(struct sender_thread *thread);

/*
 * For whoever sends on the connection, in this order. What fails is kept: `failed` for the one who
 * controls, and sender_thread__has_more() says no from then on.
 */
/* In the thread that will send, on the CPU of `place` (placement.h). */
void sender_thread__prepare(struct sender_thread *thread, unsigned int place);
void sender_thread__send_next(struct sender_thread *thread);
/* Nothing unsent, nothing in flight, all accounts up to date. */
void sender_thread__rest(struct sender_thread *thread);
void sender_thread__finish(struct sender_thread *thread);

/* Of the thread that sends; 0 of a connection that another's thread sends on. While it is parked, or has ended. */
int64_t sender_thread__cpu_ns(const struct sender_thread *thread);

static inline bool sender_thread__has_more(const struct sender_thread *thread)
{
	return !thread->err && thread->messages_left;
}

#endif

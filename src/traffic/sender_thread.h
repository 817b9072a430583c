#ifndef TRAFFIC_SENDER_THREAD_H
#define TRAFFIC_SENDER_THREAD_H

#include <pthread.h>

#include "flow.h"
#include "gate.h"
#include "options.h"
#include "report.h"
#include "slices.h"

/*
 * One connection and the thread that sends on it. The thread writes all of this without a lock;
 * others read it while the thread is parked. Aligned so that no two threads share a cache line (128:
 * x86 fetches lines in pairs).
 */
struct sender_thread {
	struct flow flow;
	struct ring ring;
	uint64_t messages_left;
	uint64_t until_timed;		/* messages until the next timed one, itself included */
	uint64_t window_left;		/* of the current window of time_every messages, after it */
	uint64_t random;
	struct slices slices;
	const struct options *options;
	struct gate *gate;
	unsigned int index;
	atomic_bool failed;		/* the reason in flow.failure is final */
	bool announced;			/* its failure, by the one who controls */
	pthread_t thread;
	struct thread_summary summary;
	struct histogram send_time;
	struct histogram completion_time;
	struct histogram round_trip;
} __attribute__((aligned(128)));

/* Takes the descriptor. 0 or -errno. */
int sender_thread__start(struct sender_thread *thread, const struct options *options,
			 struct gate *gate, unsigned int index, int fd);
/* After the gate has dismissed it. */
void sender_thread__join(struct sender_thread *thread);
void sender_thread__free(struct sender_thread *thread);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_GATE_H
#define TRAFFIC_GATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/*
 * Gate at which threads park between segments. While the gate is open, a thread pays one relaxed load per message.
 * After the gate is closed, a thread waits until nothing is in flight, then parks. `event_fd` becomes readable when
 * all threads have parked, when a thread retires because it has nothing more to send, and by gate__notify().
 */
enum gate_state { GATE_CLOSED, GATE_OPEN, GATE_DISMISSED };

struct gate {
	atomic_uint state;
	unsigned int threads;
	unsigned int parked;	/* parked threads, including retired threads */
	unsigned int retired;
	int event_fd;
	pthread_mutex_t lock;
	pthread_cond_t changed;
};

int gate__init(struct gate *gate, unsigned int threads);
void gate__destroy(struct gate *gate);

static inline bool gate__is_open(struct gate *gate)
{
	return atomic_load_explicit(&gate->state, memory_order_relaxed) == GATE_OPEN;
}

/*
 * Called by worker threads: park until the gate opens (returns true) or the threads are dismissed (returns false).
 * A thread that retires stays parked when the gate opens.
 */
bool gate__park(struct gate *gate, bool retire);

/* Called by worker threads: wake the controlling thread, because something has changed, such as a failure. */
void gate__notify(struct gate *gate);

/* Called by the controlling thread, which may read everything that the threads have written after gate__all_parked(). */
void gate__set(struct gate *gate, enum gate_state state);
bool gate__all_parked(struct gate *gate);
bool gate__all_retired(struct gate *gate);
/* Clear event_fd, so that the descriptor is not readable until the next event. */
void gate__acknowledge(struct gate *gate);

#endif

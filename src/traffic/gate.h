/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_GATE_H
#define TRAFFIC_GATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/*
 * Where the sending threads rest. While the gate is open a thread pays one relaxed load per message;
 * when it is closed a thread first brings its connection to rest, then parks here. `event_fd` becomes
 * readable when all have parked, and when one retires (it has nothing more to send) or wants to be looked at.
 */
enum gate_state { GATE_CLOSED, GATE_OPEN, GATE_DISMISSED };

struct gate {
	atomic_uint state;
	unsigned int threads;
	unsigned int parked;	/* the retired ones among them */
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

/* For the threads: park until the gate opens (true) or all are dismissed (false). */
bool gate__park(struct gate *gate, bool retire);

/* For the threads: something has changed that the one who controls should look at. */
void gate__notify(struct gate *gate);

/* For the one who controls. After gate__all_parked() he may read what the threads have written. */
void gate__set(struct gate *gate, enum gate_state state);
bool gate__all_parked(struct gate *gate);
bool gate__all_retired(struct gate *gate);
/* Make event_fd unreadable again. */
void gate__acknowledge(struct gate *gate);

#endif

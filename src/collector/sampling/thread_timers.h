/* SPDX-License-Identifier: GPL-2.0 */
/* thread_timers.h - one timer for each thread of a process, as far as there are files for them. */
#ifndef COLLECTOR_THREAD_TIMERS_H
#define COLLECTOR_THREAD_TIMERS_H

#include "events.h"

struct thread_timers {
	/* That were found, and those of them that could not have a timer. */
	unsigned int threads;
	unsigned int missing;
};

/* Threads that they start later have them, too. 0 or -errno; a process that has ended meanwhile has none. */
int thread_timers__open(struct thread_timers *totals, struct events *timers, struct bpf_program *program,
			struct perf_event_attr attr, pid_t pid);

#endif

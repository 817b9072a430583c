/* SPDX-License-Identifier: GPL-2.0 */
/*
 * thread_timers.h - a timer for each thread of one side.
 *
 * They are there only while they are armed: a task that has any event of perf pays for it at each switch, armed or not (one byte there
 * and back over lo: 4 % of the requests). A side of many threads keeps them, because to open thousands takes longer than a burst, and
 * so does one that is switched seldom: a new timer begins with a whole period (sampler.h).
 */
#ifndef COLLECTOR_THREAD_TIMERS_H
#define COLLECTOR_THREAD_TIMERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <linux/types.h>

#include "births.h"
#include "events.h"
#include "report/watched.h"

struct bpf_program;

/* So many at most are opened for each burst. */
#define TIMERS_PER_BURST 64

struct thread_timers {
	struct bpf_program *program;
	__u64 period_ns;
	/* The threads of this process; 0: of those that are watched. */
	pid_t pid;
	struct watched watched;
	/* Of those that are watched. */
	struct births births;
	struct events events;
	/* While timers are kept: the processes that were there when they were armed last, in order. */
	pid_t pids[WATCHED_MAX];
	size_t pid_count;
	/* What the clocks of the open timers said when they were disarmed last. */
	uint64_t read_ns;
	/* Threads that were found for those that are open, and how many of them could not have one; below, the most so far. */
	unsigned int found;
	unsigned int refused;
	unsigned int threads;
	unsigned int untimed;
};

/*
 * Opens what is not open, for the threads that there are now (those that they start later inherit them), and arms all at `*since_ns`. Where
 * one fails the others are armed all the same; 0 or the first -errno.
 */
int thread_timers__arm(struct thread_timers *timers, uint64_t *since_ns);
int thread_timers__disarm(struct thread_timers *timers);
/* CPU time of the threads while they were armed last; to be asked after disarming and before thread_timers__rest(). 0 or -errno. */
int thread_timers__used(struct thread_timers *timers, uint64_t *ns);
/* Closes what need not be kept. */
void thread_timers__rest(struct thread_timers *timers);
void thread_timers__close(struct thread_timers *timers);

#endif

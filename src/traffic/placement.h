/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_PLACEMENT_H
#define TRAFFIC_PLACEMENT_H

#include <sched.h>

#include "failure.h"

/* CPUs to which the threads are pinned. If count is 0, threads are not pinned. */
struct placement {
	unsigned int count;
	int cpus[CPU_SETSIZE];	/* in the order of --cpus; thread i is pinned to cpus[i % count] */
};

/* Parse a list such as "0,2-3". Return -EINVAL if a CPU does not exist or this process may not use it. */
int placement__parse(struct placement *placement, const char *text, struct failure *failure);
/* Restrict the process to these CPUs. Return 0 or -errno. */
int placement__confine_process(const struct placement *placement);
/* Pin the calling thread to the CPU of thread number `thread`. Return 0 or -errno with the reason in `failure`. */
int placement__pin_thread(const struct placement *placement, unsigned int thread,
			  struct failure *failure);

#endif

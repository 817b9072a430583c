/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_PLACEMENT_H
#define TRAFFIC_PLACEMENT_H

#include <sched.h>

#include "failure.h"

/* Which CPUs the threads run on. Empty: wherever the kernel likes. */
struct placement {
	unsigned int count;
	int cpus[CPU_SETSIZE];	/* in the order they were given: thread i runs on cpus[i % count] */
};

/* "0,2-3". -EINVAL for CPUs that do not exist or that this process may not use. */
int placement__parse(struct placement *placement, const char *text, struct failure *failure);
/* The whole process onto the set. 0 or -errno. */
int placement__confine_process(const struct placement *placement);
int placement__pin_thread(const struct placement *placement, unsigned int thread,
			  struct failure *failure);

#endif

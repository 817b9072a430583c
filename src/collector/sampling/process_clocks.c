// SPDX-License-Identifier: GPL-2.0
#include "process_clocks.h"

#include <time.h>

#include "kernel/clock.h"

static uint64_t cpu_ns(pid_t pid)
{
	struct timespec used;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &used))
		return 0;
	return used.tv_sec * NSEC_PER_SEC + used.tv_nsec;
}

void process_clocks__begin(struct process_clocks *clocks, const struct watched *watched)
{
	for (size_t i = 0; i < watched->count; i++)
		clocks->began_ns[i] = cpu_ns(watched->processes[i].pid);
}

uint64_t process_clocks__used_ns(const struct process_clocks *clocks, const struct watched *watched)
{
	uint64_t used_ns = 0;

	for (size_t i = 0; i < watched->count; i++) {
		uint64_t ended_ns = cpu_ns(watched->processes[i].pid);

		if (clocks->began_ns[i] && ended_ns > clocks->began_ns[i])
			used_ns += ended_ns - clocks->began_ns[i];
	}
	return used_ns;
}

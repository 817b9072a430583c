// SPDX-License-Identifier: GPL-2.0-only
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "placement.h"

static int add_cpu(struct placement *placement, const cpu_set_t *allowed, long cpu,
		   const char *text, struct failure *failure)
{
	if (cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, allowed))
		return failure__set(failure, -EINVAL, "--cpus %s: CPU %ld does not exist or is not in "
				    "this process's affinity mask; see `taskset -p`", text, cpu);
	for (unsigned int i = 0; i < placement->count; i++)
		if (placement->cpus[i] == cpu)
			return failure__set(failure, -EINVAL, "--cpus %s: CPU %ld appears twice; give "
					    "each CPU once", text, cpu);
	placement->cpus[placement->count++] = cpu;
	return 0;
}

int placement__parse(struct placement *placement, const char *text, struct failure *failure)
{
	const char *range = text;
	cpu_set_t allowed;

	placement->count = 0;
	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return failure__set(failure, -errno, "--cpus: cannot read the affinity mask: %s", strerror(errno));
	for (;;) {
		long first, last;
		char *end;

		if (!isdigit((unsigned char)*range))
			break;
		first = strtol(range, &end, 10);
		last = first;
		if (*end == '-' && isdigit((unsigned char)end[1]))
			last = strtol(end + 1, &end, 10);
		if (last < first)
			break;
		for (long cpu = first; cpu <= last; cpu++) {
			int err = add_cpu(placement, &allowed, cpu, text, failure);

			if (err)
				return err;
		}
		if (!*end)
			return 0;
		if (*end != ',')
			break;
		range = end + 1;
	}
	return failure__set(failure, -EINVAL, "--cpus %s: not a list of CPUs; write 0 or 0,2-3", text);
}

int placement__confine_process(const struct placement *placement)
{
	cpu_set_t set;

	if (!placement->count)
		return 0;
	CPU_ZERO(&set);
	for (unsigned int i = 0; i < placement->count; i++)
		CPU_SET(placement->cpus[i], &set);
	return sched_setaffinity(0, sizeof(set), &set) ? -errno : 0;
}

int placement__pin_thread(const struct placement *placement, unsigned int thread,
			  struct failure *failure)
{
	cpu_set_t set;
	int err;

	if (!placement->count)
		return 0;
	CPU_ZERO(&set);
	CPU_SET(placement->cpus[thread % placement->count], &set);
	err = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	if (!err)
		return 0;
	return failure__set(failure, -err, "--cpus: cannot pin a thread to CPU %d: %s",
			    placement->cpus[thread % placement->count], strerror(err));
}

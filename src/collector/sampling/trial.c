// SPDX-License-Identifier: GPL-2.0-only
#include "trial.h"

#include <stdint.h>
#include <time.h>

#include "events.h"
#include "kernel/clock.h"

/*
 * In frequency mode the first period is 1 (perf_event_alloc(), kernel/events/core.c), so a PMU that interrupts does
 * so at once.
 */
#define TRIAL_NS 10000000ULL

static uint64_t own_cpu_ns(void)
{
	struct timespec spent;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
	return spent.tv_sec * NSEC_PER_SEC + spent.tv_nsec;
}

bool trial__interrupts(const struct events *events, const volatile __u64 *interrupts)
{
	uint64_t end_ns = own_cpu_ns() + TRIAL_NS;
	__u64 before = *interrupts;

	events__switch(events, PERF_EVENT_IOC_ENABLE);
	while (*interrupts == before && own_cpu_ns() < end_ns)
		;
	events__switch(events, PERF_EVENT_IOC_DISABLE);
	return *interrupts != before;
}

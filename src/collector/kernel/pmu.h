/* SPDX-License-Identifier: GPL-2.0-only */
/* pmu.h - events that can be counted or sampled, by their names in perf, and the CPUs that have them. */
#ifndef COLLECTOR_PMU_H
#define COLLECTOR_PMU_H

#include <stdbool.h>
#include <stddef.h>

#include <linux/perf_event.h>
#include <linux/types.h>

struct event_row {
	char name[24];
	const char *unit;
	/* Description of the substitute event, if the PMU has none of this name; NULL otherwise. */
	const char *counts;
	__u32 type;
	__u64 config;
};

enum coverage { COVERS_NOTHING, COVERS_SOME, COVERS_ALL };

struct covered {
	/* List of the CPUs on which the event is open, such as 0-11,14. */
	char cpus[256];
	/* If the event is not on all CPUs: the first error (-errno) and the reason; else 0 and empty. */
	int err;
	char reason[224];
};

/*
 * Look up an event by its name in perf, or a raw event of this processor's PMU such as r03 (perf-list(1)). Return
 * false if there is none.
 */
bool pmu__find(const char *name, struct event_row *row);
/*
 * Open the event on each online CPU, into fds[cpus]; negative where it is not open. Offline CPUs do not reduce the
 * coverage.
 */
enum coverage pmu__open(const struct event_row *row, struct perf_event_attr attr, int *fds, int cpus, struct covered *covered);
/* Open the event for this thread while it runs on the CPU. Return the descriptor, or -errno with a reason. */
int pmu__open_own(const struct event_row *row, struct perf_event_attr attr, int cpu, char *reason, size_t size);
/* Return true if there are several types of cores, whose cycles have different lengths. */
bool pmu__types_differ(void);

#endif

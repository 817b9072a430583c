/* SPDX-License-Identifier: GPL-2.0 */
/* pmu.h - the events that can be counted or sampled, by perf's names, and on which CPUs. */
#ifndef COLLECTOR_PMU_H
#define COLLECTOR_PMU_H

#include <stdbool.h>
#include <stddef.h>

#include <linux/perf_event.h>
#include <linux/types.h>

struct event_row {
	char name[24];
	const char *unit;
	/* What is counted under that name where the PMU has no event that has it; else NULL. */
	const char *counts;
	__u32 type;
	__u64 config;
};

enum coverage { COVERS_NOTHING, COVERS_SOME, COVERS_ALL };

struct covered {
	/* Such as 0-11,14. */
	char cpus[256];
	/* Where it was refused first, -errno, and why it is not on all; else 0 and empty. */
	int err;
	char reason[224];
};

/* An event by perf's name, also a raw one of this processor's own PMU, such as r03 (perf-list(1)); false: no such event. */
bool pmu__find(const char *name, struct event_row *row);
/* Opens it on each CPU that is online, into fds[cpus]: negative where it is not. An offline CPU is not missed. */
enum coverage pmu__open(const struct event_row *row, struct perf_event_attr attr, int *fds, int cpus, struct covered *covered);
/* Whether the cores are of several types: a cycle is then not as long on all of them. */
bool pmu__types_differ(void);

#endif

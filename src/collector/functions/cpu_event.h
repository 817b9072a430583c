/* SPDX-License-Identifier: GPL-2.0 */
/* cpu_event.h - one perf event on every CPU: it counts kernel mode, of all tasks. */
#ifndef COLLECTOR_CPU_EVENT_H
#define COLLECTOR_CPU_EVENT_H

#include <stdbool.h>

#include <linux/perf_event.h>
#include <linux/types.h>

#include "kernel/pmu.h"

/* What an event has done so far, all CPUs together. In the order of PERF_FORMAT_TOTAL_TIME_*. */
struct event_total {
	__u64 count;
	__u64 enabled_ns;
	__u64 running_ns;
};

struct cpu_event {
	struct event_row row;
	bool works;
	/* Not on all CPUs that are online; where not, programs read 0. */
	bool partial;
	struct covered covered;
	/* Why not; or why only a part of the time. */
	char reason[256];
	int cpus;
	/* by CPU; negative: offline, without the event, or closed */
	int *fds;
	/* by CPU: what reads 0 where it is partial */
	int *idle_fds;
	/* What trials added to its totals. */
	struct event_total trial;
};

/* On all CPUs that have it; of none of them it does not work, and says why. 0, or -ENOMEM. */
int cpu_event__open(struct cpu_event *event, const struct event_row *row, int cpus);
/* PERF_EVENT_IOC_ENABLE or _DISABLE. */
void cpu_event__control(const struct cpu_event *event, unsigned long request);
struct event_total cpu_event__total(const struct cpu_event *event);
/* Since an earlier total. */
struct event_total cpu_event__since(const struct cpu_event *event, struct event_total before);
/* The part of the time that it counted, 0..1. */
double cpu_event__running(struct event_total total);
/* What a program on that CPU reads; negative: nothing. */
int cpu_event__fd(const struct cpu_event *event, int cpu);
void cpu_event__close(struct cpu_event *event);

#endif

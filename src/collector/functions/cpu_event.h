/* SPDX-License-Identifier: GPL-2.0-only */
/* cpu_event.h - one perf event on every CPU, which counts kernel mode of all tasks. */
#ifndef COLLECTOR_CPU_EVENT_H
#define COLLECTOR_CPU_EVENT_H

#include <stdbool.h>

#include <linux/perf_event.h>
#include <linux/types.h>

#include "kernel/pmu.h"

/* Totals of an event over all CPUs so far, in the order of PERF_FORMAT_TOTAL_TIME_*. */
struct event_total {
	__u64 count;
	__u64 enabled_ns;
	__u64 running_ns;
};

struct cpu_event {
	struct event_row row;
	bool works;
	/* Some online CPUs lack the event. Programs read 0 there. */
	bool partial;
	struct covered covered;
	/* Why the event does not work, or why it counts only a part of the time. */
	char reason[256];
	int cpus;
	/* descriptor for each CPU; negative: the CPU is offline, has no such event, or the event is closed */
	int *fds;
	/* descriptor for each CPU without the event: a dummy event that reads 0 */
	int *idle_fds;
	/* Totals that trials added. */
	struct event_total trial;
};

/* Open the event on all CPUs that have it. If none has it, set `works` to false and a reason. Return 0 or -ENOMEM. */
int cpu_event__open(struct cpu_event *event, const struct event_row *row, int cpus);
/* Switch the event on or off on all CPUs. `request` is PERF_EVENT_IOC_ENABLE or PERF_EVENT_IOC_DISABLE. */
void cpu_event__control(const struct cpu_event *event, unsigned long request);
struct event_total cpu_event__total(const struct cpu_event *event);
/* Return the difference to an earlier total. */
struct event_total cpu_event__since(const struct cpu_event *event, struct event_total before);
/* Return the fraction (0 to 1) of the time for which the event counted. */
double cpu_event__running(struct event_total total);
/* Return the descriptor that a program on that CPU reads; negative: none. */
int cpu_event__fd(const struct cpu_event *event, int cpu);
void cpu_event__close(struct cpu_event *event);

#endif

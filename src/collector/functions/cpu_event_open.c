// SPDX-License-Identifier: GPL-2.0-only
#include "cpu_event.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernel/perf_open.h"

/* Without this dummy event, a program on such a CPU would get an error. */
static void open_idle(struct cpu_event *event, struct perf_event_attr attr)
{
	attr.size = sizeof(attr);
	attr.type = PERF_TYPE_SOFTWARE;
	attr.config = PERF_COUNT_SW_DUMMY;
	for (int cpu = 0; cpu < event->cpus; cpu++)
		event->idle_fds[cpu] = event->fds[cpu] < 0 ? perf_open(&attr, PERF_ALL_TASKS, cpu) : -ENODEV;
}

int cpu_event__open(struct cpu_event *event, const struct event_row *row, int cpus)
{
	struct perf_event_attr attr = {
		.disabled = 1,
		.exclude_user = 1,
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
	};
	enum coverage coverage;

	event->row = *row;
	event->cpus = cpus;
	event->fds = malloc(cpus * sizeof(*event->fds));
	if (!event->fds)
		return -ENOMEM;
	coverage = pmu__open(row, attr, event->fds, cpus, &event->covered);
	event->works = coverage != COVERS_NOTHING;
	event->partial = coverage == COVERS_SOME;
	snprintf(event->reason, sizeof(event->reason), "%s", event->covered.reason);
	if (!event->partial)
		return 0;
	event->idle_fds = malloc(cpus * sizeof(*event->idle_fds));
	if (!event->idle_fds)
		return -ENOMEM;
	open_idle(event, attr);
	return 0;
}

int cpu_event__fd(const struct cpu_event *event, int cpu)
{
	return event->fds[cpu] < 0 && event->idle_fds ? event->idle_fds[cpu] : event->fds[cpu];
}

// SPDX-License-Identifier: GPL-2.0
#include "cpu_event.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct event_total cpu_event__total(const struct cpu_event *event)
{
	struct event_total sum = {}, one;

	for (int cpu = 0; cpu < event->cpus; cpu++) {
		if (event->fds[cpu] < 0 || read(event->fds[cpu], &one, sizeof(one)) != sizeof(one))
			continue;
		sum.count += one.count;
		sum.enabled_ns += one.enabled_ns;
		sum.running_ns += one.running_ns;
	}
	return sum;
}

struct event_total cpu_event__since(const struct cpu_event *event, struct event_total before)
{
	struct event_total now = cpu_event__total(event);

	now.count -= before.count;
	now.enabled_ns -= before.enabled_ns;
	now.running_ns -= before.running_ns;
	return now;
}

double cpu_event__running(struct event_total total)
{
	return total.enabled_ns ? (double)total.running_ns / total.enabled_ns : 0;
}

static void close_all(struct cpu_event *event)
{
	for (int cpu = 0; event->fds && cpu < event->cpus; cpu++) {
		if (event->fds[cpu] >= 0)
			close(event->fds[cpu]);
		event->fds[cpu] = -1;
	}
	event->works = false;
}

int cpu_event__open(struct cpu_event *event, const struct event_row *row, int cpus)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = row->type,
		.disabled = 1,
		.exclude_user = 1,
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
	};

	event->row = *row;
	event->cpus = cpus;
	event->fds = malloc(cpus * sizeof(*event->fds));
	if (!event->fds)
		return -ENOMEM;
	for (int cpu = 0; cpu < cpus; cpu++)
		event->fds[cpu] = -1;
	for (int cpu = 0; cpu < cpus; cpu++) {
		int fd;

		attr.config = pmu__config(row, cpu);
		fd = syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
		if (fd < 0 && errno != ENODEV) { /* ENODEV: an offline CPU */
			pmu__explain(-errno, event->reason, sizeof(event->reason));
			close_all(event);
			return 0;
		}
		event->fds[cpu] = fd;
	}
	event->works = true;
	return 0;
}

void cpu_event__control(const struct cpu_event *event, unsigned long request)
{
	for (int cpu = 0; event->works && cpu < event->cpus; cpu++)
		if (event->fds[cpu] >= 0)
			ioctl(event->fds[cpu], request, 0);
}

void cpu_event__close(struct cpu_event *event)
{
	close_all(event);
	free(event->fds);
	event->fds = NULL;
}

// SPDX-License-Identifier: GPL-2.0-only
#include "cpu_event.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct event_total cpu_event__total(const struct cpu_event *event)
{
	struct event_total sum = {}, value;

	for (int cpu = 0; event->fds && cpu < event->cpus; cpu++) {
		if (event->fds[cpu] < 0 || read(event->fds[cpu], &value, sizeof(value)) != sizeof(value))
			continue;
		sum.count += value.count;
		sum.enabled_ns += value.enabled_ns;
		sum.running_ns += value.running_ns;
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

static int *close_all(int *fds, int cpus)
{
	for (int cpu = 0; fds && cpu < cpus; cpu++)
		if (fds[cpu] >= 0)
			close(fds[cpu]);
	free(fds);
	return NULL;
}

void cpu_event__control(const struct cpu_event *event, unsigned long request)
{
	for (int cpu = 0; event->works && cpu < event->cpus; cpu++)
		if (event->fds[cpu] >= 0)
			ioctl(event->fds[cpu], request, 0);
}

void cpu_event__close(struct cpu_event *event)
{
	event->fds = close_all(event->fds, event->cpus);
	event->idle_fds = close_all(event->idle_fds, event->cpus);
	event->works = false;
}

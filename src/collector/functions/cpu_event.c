// SPDX-License-Identifier: GPL-2.0
#include "cpu_event.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel/pmu.h"

#define MISS(cache, op) ((cache) | ((op) << 8) | (PERF_COUNT_HW_CACHE_RESULT_MISS << 16))
#define LOAD_MISS(cache) MISS(cache, PERF_COUNT_HW_CACHE_OP_READ)
#define STORE_MISS(cache) MISS(cache, PERF_COUNT_HW_CACHE_OP_WRITE)

static const struct event_row event_rows[] = {
	{ "cycles", "cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES },
	{ "instructions", "instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS },
	{ "LLC-load-misses", "misses", PERF_TYPE_HW_CACHE, LOAD_MISS(PERF_COUNT_HW_CACHE_LL) },
	{ "L1-dcache-load-misses", "misses", PERF_TYPE_HW_CACHE, LOAD_MISS(PERF_COUNT_HW_CACHE_L1D) },
	{ "dTLB-load-misses", "misses", PERF_TYPE_HW_CACHE, LOAD_MISS(PERF_COUNT_HW_CACHE_DTLB) },
	{ "dTLB-store-misses", "misses", PERF_TYPE_HW_CACHE, STORE_MISS(PERF_COUNT_HW_CACHE_DTLB) },
	{ "iTLB-load-misses", "misses", PERF_TYPE_HW_CACHE, LOAD_MISS(PERF_COUNT_HW_CACHE_ITLB) },
	{ "cpu-clock", "ns", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK },
	{ "page-faults", "faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS },
};
#define EVENT_ROWS (sizeof(event_rows) / sizeof(*event_rows))

static bool find_raw(const char *name, struct event_row *row)
{
	unsigned long long config;
	char *end;

	if (name[0] != 'r' || !isxdigit((unsigned char)name[1]) || strlen(name) >= sizeof(row->name))
		return false;
	config = strtoull(name + 1, &end, 16);
	if (*end)
		return false;
	*row = (struct event_row){ .unit = "events", .type = PERF_TYPE_RAW, .config = config };
	strcpy(row->name, name);
	return true;
}

bool cpu_event__find(const char *name, struct event_row *row)
{
	for (size_t i = 0; i < EVENT_ROWS; i++) {
		if (strcmp(event_rows[i].name, name))
			continue;
		*row = event_rows[i];
		return true;
	}
	return find_raw(name, row);
}

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

static void refuse(struct cpu_event *event, int err)
{
	if (err == -ENOENT || err == -EOPNOTSUPP)
		snprintf(event->reason, sizeof(event->reason), "this machine has no such event (no PMU?)");
	else
		snprintf(event->reason, sizeof(event->reason), "perf_event_open: %s", strerror(-err));
	close_all(event);
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

		attr.config = row->config | pmu__extended_type(attr.type, cpu);
		fd = syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
		if (fd < 0 && errno != ENODEV) { /* ENODEV: an offline CPU */
			refuse(event, -errno);
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

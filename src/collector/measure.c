// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE
#include "measure.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "kernel/known_work.h"
#include "kernel/pmu.h"
#include "report/message.h"

/* Some virtual PMUs count interrupts as user mode. The smallest of several counts of short work has none. */
#define TRIES 5

static const char *const event_names[] = { "cycles", "instructions", "L1-dcache-load-misses", "LLC-load-misses" };
#define EVENTS (sizeof(event_names) / sizeof(*event_names))

/* Counted events, and the times for which the event was enabled and was on a counter (perf_event_open(2)). */
struct reading {
	uint64_t value, enabled_ns, running_ns;
};

static int count_once(int fd, const struct known_work *work, struct known_area *area, struct reading *reading)
{
	known_work__prepare(work, area);
	if (ioctl(fd, PERF_EVENT_IOC_RESET, 0) || ioctl(fd, PERF_EVENT_IOC_ENABLE, 0))
		return -errno;
	work->run(area, work);
	if (ioctl(fd, PERF_EVENT_IOC_DISABLE, 0))
		return -errno;
	if (read(fd, reading, sizeof(*reading)) != sizeof(*reading))
		return -EIO;
	return reading->running_ns < reading->enabled_ns ? -EBUSY : 0;
}

/* Return the counted events, or -errno: -EBUSY if other events use the counters. */
static int64_t count(int fd, const struct known_work *work, struct known_area *area)
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < (work->computes ? TRIES : 1); i++) {
		struct reading reading;
		int err = count_once(fd, work, area, &reading);

		if (err)
			return err;
		if (reading.value < least)
			least = reading.value;
	}
	return least;
}

static void do_nothing(struct known_area *area, const struct known_work *work)
{
	(void)area;
	(void)work;
}

/* Count short work, without the instructions that switch the event on and off. */
static int64_t count_short(int fd, const struct known_work *work, struct known_area *area)
{
	const struct known_work nothing = { .name = "nothing", .run = do_nothing, .computes = true };
	int64_t counted = count(fd, work, area), switching = counted < 0 ? counted : count(fd, &nothing, area);

	return switching < 0 ? switching : counted - switching;
}

/* Return the counts of an event as JSON, and a reason if it has none. */
static json_t *measure_event(const char *name, int cpu, struct known_area *area)
{
	struct perf_event_attr attr = {
		.disabled = 1, .exclude_kernel = 1, .exclude_hv = 1,
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
	};
	char reason[224] = "";
	json_t *counts = json_array();
	struct event_row row;
	int fd = pmu__find(name, &row) ? pmu__open_own(&row, attr, cpu, reason, sizeof(reason)) : -ENOENT;

	for (size_t i = 0; fd >= 0 && i < known_work_count; i++) {
		const struct known_work *work = &known_works[i];
		int64_t expected = known_work__expect(work, area, name), counted;

		if (expected < 0)
			continue;
		counted = work->computes ? count_short(fd, work, area) : count(fd, work, area);
		if (counted < 0) {
			snprintf(reason, sizeof(reason), "%s", counted == -EBUSY ? "other programs use the counters of the PMU" : strerror(-counted));
			break;
		}
		json_array_append_new(counts, json_pack("{s:s, s:I, s:I, s:I}", "work", work->name,
							"lines", (json_int_t)known_work__lines(work, area),
							"known", (json_int_t)expected, "counted", (json_int_t)counted));
	}
	if (fd >= 0)
		close(fd);
	return json_pack("{s:s, s:s*, s:s?, s:o}", "name", name, "counts_instead", row.counts, "reason",
			 reason[0] ? reason : NULL, "counts", counts);
}

int measure__print(int cpu, size_t llc_bytes)
{
	json_t *events = json_array();
	struct known_area *area;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		complain("--measure", "CPU %d: %s; choose another CPU", cpu, strerror(errno));
		return -errno;
	}
	area = known_area__new(llc_bytes);
	if (!area) {
		complain("--measure", "%s: it needs twice the size of the last-level cache, and 32 MiB", strerror(ENOMEM));
		return -ENOMEM;
	}
	for (size_t i = 0; i < EVENTS; i++)
		json_array_append_new(events, measure_event(event_names[i], cpu, area));
	return print_json_line(json_pack("{s:s, s:i, s:o}", "event", "measured", "cpu", cpu, "events", events));
}

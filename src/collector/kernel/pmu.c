// SPDX-License-Identifier: GPL-2.0-only
#include "pmu.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "core_pmus.h"
#include "perf_open.h"

#define MISS(cache, op) ((cache) | ((op) << 8) | (PERF_COUNT_HW_CACHE_RESULT_MISS << 16))
#define LOAD_MISS(cache) MISS(cache, PERF_COUNT_HW_CACHE_OP_READ)
#define STORE_MISS(cache) MISS(cache, PERF_COUNT_HW_CACHE_OP_WRITE)

#define LLC_LOAD_MISSES "LLC-load-misses"

static const struct event_row event_rows[] = {
	{ "cycles", "cycles", NULL, PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES },
	/*
	 * This event counts at a constant rate, independent of the core's clock. Available on Intel, and on AMD from
	 * Zen 4 on (amd_zen4_perfmon_event_map[]).
	 */
	{ "ref-cycles", "cycles", NULL, PERF_TYPE_HARDWARE, PERF_COUNT_HW_REF_CPU_CYCLES },
	{ "instructions", "instructions", NULL, PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS },
	{ LLC_LOAD_MISSES, "misses", NULL, PERF_TYPE_HW_CACHE, LOAD_MISS(PERF_COUNT_HW_CACHE_LL) },
	{ "L1-dcache-load-misses", "misses", NULL, PERF_TYPE_HW_CACHE, LOAD_MISS(PERF_COUNT_HW_CACHE_L1D) },
	{ "dTLB-load-misses", "misses", NULL, PERF_TYPE_HW_CACHE, LOAD_MISS(PERF_COUNT_HW_CACHE_DTLB) },
	{ "dTLB-store-misses", "misses", NULL, PERF_TYPE_HW_CACHE, STORE_MISS(PERF_COUNT_HW_CACHE_DTLB) },
	{ "iTLB-load-misses", "misses", NULL, PERF_TYPE_HW_CACHE, LOAD_MISS(PERF_COUNT_HW_CACHE_ITLB) },
	{ "cpu-clock", "ns", NULL, PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK },
	{ "page-faults", "faults", NULL, PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS },
};
#define EVENT_ROWS (sizeof(event_rows) / sizeof(*event_rows))

/*
 * Zen has no event of that name (amd_hw_cache_event_ids_f17h[] in arch/x86/events/amd/core.c). PMCx043 with the masks
 * 08h and 40h has the same meaning on Zen 2 to 5: tools/perf/pmu-events/arch/x86/amdzen2/memory.json to
 * amdzen5/load-store.json.
 */
static const struct event_row zen_llc_load_misses = {
	LLC_LOAD_MISSES, "misses", "AMD: lines that loads and stores, without prefetches, got from memory (r4843)",
	PERF_TYPE_RAW, 0x4843,
};

static bool find_raw(const char *name, struct event_row *row)
{
	unsigned long long config;
	char *end;

	if (name[0] != 'r' || !isxdigit((unsigned char)name[1]) || strlen(name) > 1 + 2 * sizeof(row->config))
		return false;
	config = strtoull(name + 1, &end, 16);
	if (*end)
		return false;
	*row = (struct event_row){ .unit = "events", .type = PERF_TYPE_RAW, .config = config };
	strcpy(row->name, name);
	return true;
}

bool pmu__find(const char *name, struct event_row *row)
{
	if (!strcmp(name, LLC_LOAD_MISSES) && core_pmus__zen(core_pmus__here())) {
		*row = zen_llc_load_misses;
		return true;
	}
	for (size_t i = 0; i < EVENT_ROWS; i++) {
		if (strcmp(event_rows[i].name, name))
			continue;
		*row = event_rows[i];
		return true;
	}
	return find_raw(name, row);
}

/* Return true for a generic event: the PMU of each type of core maps it to an event of its own. */
static bool is_generic(const struct event_row *row)
{
	return row->type == PERF_TYPE_HARDWARE || row->type == PERF_TYPE_HW_CACHE;
}

/*
 * If each core type has a PMU, bits 63:32 of the config select the PMU (PERF_PMU_CAP_EXTENDED_HW_TYPE,
 * include/uapi/linux/perf_event.h). arm64 accepts this from 6.6 on (commit 5c816728651a); earlier kernels use the PMU
 * of the CPU.
 */
static int open_one(const struct event_row *row, struct perf_event_attr *attr, const struct core_pmu *owner, pid_t task, int cpu)
{
	int fd;

	attr->size = sizeof(*attr);
	attr->type = row->type;
	attr->config = row->config;
	if (!owner || !is_generic(row))
		return perf_open(attr, task, cpu);
	attr->config |= (__u64)owner->type << 32;
	fd = perf_open(attr, task, cpu);
	if (fd != -ENOENT)
		return fd;
	attr->config = row->config;
	return perf_open(attr, task, cpu);
}

/* Write a name for the PMU into messages: its own name, or a description such as "AMD's PMU". */
static void name_pmu(const struct core_pmus *pmus, const struct core_pmu *owner, char *name, size_t size)
{
	const char *maker = !strcmp(pmus->vendor, "AuthenticAMD") ? "AMD's" :
			    !strcmp(pmus->vendor, "GenuineIntel") ? "this Intel" : "this";

	if (owner)
		snprintf(name, size, "%s", owner->name);
	else
		snprintf(name, size, "%s PMU", maker);
}

static void explain(const struct event_row *row, const struct core_pmus *pmus, const struct core_pmu *owner, int opened,
		    int err, char *reason, size_t size)
{
	char name[80];

	name_pmu(pmus, owner, name, sizeof(name));
	if (err != -ENOENT && err != -EOPNOTSUPP)
		snprintf(reason, size, "perf_event_open: %s", strerror(-err));
	else if (row->type == PERF_TYPE_SOFTWARE)
		snprintf(reason, size, "this kernel has no such event");
	else if (!pmus->count && !pmus->plain && !opened)
		snprintf(reason, size, "this machine has no PMU");
	else
		snprintf(reason, size, "%s has no such event%s", name,
			 err == -EOPNOTSUPP ? ", or cannot sample it" : "");
}

/* Write the CPUs on which the event is open, such as 0-11,14. */
static void list_open(const int *fds, int cpus, char *list, size_t size)
{
	size_t used = 0;

	list[0] = '\0';
	for (int cpu = 0; cpu < cpus && used < size; cpu++) {
		int first = cpu;

		if (fds[cpu] < 0)
			continue;
		while (cpu + 1 < cpus && fds[cpu + 1] >= 0)
			cpu++;
		used += snprintf(list + used, size - used, "%s%d", used ? "," : "", first);
		if (cpu > first && used < size)
			used += snprintf(list + used, size - used, "-%d", cpu);
	}
}

/*
 * Give each CPU a rate of its own, at most 5 % lower. Timers that start together at the same rate stay in phase.
 * Work of one CPU because of another CPU would then always or never be sampled: in one run of seventy, the share of
 * a receiver whose timer fired during the sender's sampling was 0.3 to 0.6 of its real time. With different rates,
 * all phases occur.
 */
static void set_rate(struct perf_event_attr *attr, const struct event_row *row, __u64 rate_hz, int cpu)
{
	/* The golden ratio spreads the rates for any number of CPUs. */
	const __u64 slower = cpu * 618ULL % 1000;

	attr->sample_freq = rate_hz - rate_hz * slower / 20000;
	if (row->type != PERF_TYPE_SOFTWARE)
		return;
	/*
	 * Within 5 % of 199 Hz there are only ten integer rates. Set the period in nanoseconds instead, into which
	 * the kernel converts a rate anyway.
	 */
	attr->freq = 0;
	attr->sample_period = NSEC_PER_SEC * 20000 / (rate_hz * (20000 - slower));
}

enum coverage pmu__open(const struct event_row *row, struct perf_event_attr attr, int *fds, int cpus, struct covered *covered)
{
	const struct core_pmus *pmus = core_pmus__here();
	const __u64 rate_hz = attr.freq ? attr.sample_freq : 0;
	const struct core_pmu *first_lacking = NULL;
	int opened = 0;
	char why[128];

	*covered = (struct covered){};
	for (int cpu = 0; cpu < cpus; cpu++) {
		const struct core_pmu *owner = core_pmus__of(pmus, cpu);
		bool wanted = core_pmus__is_online(pmus, cpu) && !(rate_hz && core_pmus__is_spared(pmus, cpu));

		if (rate_hz)
			set_rate(&attr, row, rate_hz, cpu);
		fds[cpu] = wanted ? open_one(row, &attr, owner, PERF_ALL_TASKS, cpu) : -ENODEV;
		opened += fds[cpu] >= 0;
		/* ENODEV: the CPU is offline or spared. */
		if (fds[cpu] >= 0 || fds[cpu] == -ENODEV || covered->err)
			continue;
		covered->err = fds[cpu];
		first_lacking = owner;
	}
	if (!opened && !covered->err)
		covered->err = -ENODEV;
	explain(row, pmus, first_lacking, opened, covered->err, why, sizeof(why));
	list_open(fds, cpus, covered->cpus, sizeof(covered->cpus));
	if (!opened)
		snprintf(covered->reason, sizeof(covered->reason), "%s", why);
	else if (covered->err)
		snprintf(covered->reason, sizeof(covered->reason), "only on CPU%s %.60s: %s",
			 strpbrk(covered->cpus, ",-") ? "s" : "", covered->cpus, why);
	return !opened ? COVERS_NOTHING : covered->err ? COVERS_SOME : COVERS_ALL;
}

int pmu__open_own(const struct event_row *row, struct perf_event_attr attr, int cpu, char *reason, size_t size)
{
	const struct core_pmus *pmus = core_pmus__here();
	const struct core_pmu *owner = core_pmus__of(pmus, cpu);
	int fd = open_one(row, &attr, owner, PERF_OWN_TASK, cpu);

	if (fd < 0)
		explain(row, pmus, owner, 0, fd, reason, size);
	return fd;
}

bool pmu__types_differ(void)
{
	return core_pmus__types(core_pmus__here()) > 1;
}

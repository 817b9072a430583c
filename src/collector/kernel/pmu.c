// SPDX-License-Identifier: GPL-2.0
#include "pmu.h"

#include <ctype.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

bool pmu__find(const char *name, struct event_row *row)
{
	for (size_t i = 0; i < EVENT_ROWS; i++) {
		if (strcmp(event_rows[i].name, name))
			continue;
		*row = event_rows[i];
		return true;
	}
	return find_raw(name, row);
}

static const char *const core_pmus[] = { "cpu_core", "cpu_atom" };

/* Is the CPU in a list such as `0-3,8`? */
static bool list_holds(FILE *file, int cpu)
{
	int first, last;

	while (fscanf(file, "%d", &first) == 1) {
		int next = fgetc(file);

		last = first;
		if (next == '-') {
			if (fscanf(file, "%d", &last) != 1)
				return false;
			next = fgetc(file);
		}
		if (cpu >= first && cpu <= last)
			return true;
		if (next != ',')
			return false;
	}
	return false;
}

static FILE *open_file(const char *pmu, const char *name)
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/bus/event_source/devices/%s/%s", pmu, name);
	return fopen(path, "re");
}

static bool owns_cpu(const char *pmu, int cpu)
{
	FILE *file = open_file(pmu, "cpus");
	bool owns = file && list_holds(file, cpu);

	if (file)
		fclose(file);
	return owns;
}

static __u64 type_of(const char *pmu)
{
	FILE *file = open_file(pmu, "type");
	unsigned int type = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%u", &type) != 1)
		type = 0;
	fclose(file);
	return type;
}

/*
 * Bits 63:32 of the config: hybrid CPUs have one core PMU per core type. The type of the one that owns the CPU
 * (PERF_PMU_CAP_EXTENDED_HW_TYPE, include/uapi/linux/perf_event.h), 0 on machines with one core type and for software events.
 */
static __u64 extended_type(__u32 event_type, int cpu)
{
	if (event_type != PERF_TYPE_HARDWARE && event_type != PERF_TYPE_HW_CACHE)
		return 0;
	for (unsigned int i = 0; i < sizeof(core_pmus) / sizeof(*core_pmus); i++)
		if (owns_cpu(core_pmus[i], cpu))
			return type_of(core_pmus[i]) << 32;
	return 0;
}

__u64 pmu__config(const struct event_row *row, int cpu)
{
	return row->config | extended_type(row->type, cpu);
}

void pmu__explain(int err, char *reason, size_t size)
{
	if (err == -ENOENT || err == -EOPNOTSUPP)
		snprintf(reason, size, "this machine has no such event (no PMU?)");
	else
		snprintf(reason, size, "perf_event_open: %s", strerror(-err));
}

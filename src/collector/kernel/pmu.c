// SPDX-License-Identifier: GPL-2.0
#include "pmu.h"

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdio.h>

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

__u64 pmu__extended_type(__u32 event_type, int cpu)
{
	if (event_type != PERF_TYPE_HARDWARE && event_type != PERF_TYPE_HW_CACHE)
		return 0;
	for (unsigned int i = 0; i < sizeof(core_pmus) / sizeof(*core_pmus); i++)
		if (owns_cpu(core_pmus[i], cpu))
			return type_of(core_pmus[i]) << 32;
	return 0;
}

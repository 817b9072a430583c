// SPDX-License-Identifier: GPL-2.0-only
#include "core_pmus.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICES "/sys/bus/event_source/devices"

const char *core_pmus_root = "";

static struct core_pmus this_machine;
static bool is_read;

/* Return the first line of a file, which the caller frees, or NULL if there is no such file. */
static char *read_line(const char *directory, const char *name)
{
	char path[512], *line = NULL;
	size_t size = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s%s/%s", core_pmus_root, directory, name);
	file = fopen(path, "re");
	if (!file)
		return NULL;
	if (getline(&line, &size, file) < 0) {
		free(line);
		line = NULL;
	}
	fclose(file);
	return line;
}

static bool list_holds(const char *list, int cpu)
{
	while (isdigit((unsigned char)*list)) {
		char *end;
		long first = strtol(list, &end, 10), last = first;

		if (*end == '-')
			last = strtol(end + 1, &end, 10);
		if (cpu >= first && cpu <= last)
			return true;
		list = *end == ',' ? end + 1 : end;
	}
	return false;
}

/* As in perf, a PMU with a file `cpus` is a PMU of cores (is_sysfs_pmu_core() in tools/perf/util/pmu.c). */
static void add_pmu(struct core_pmus *pmus, const char *name)
{
	struct core_pmu *pmu = &pmus->all[pmus->count];
	char directory[384], *type;

	if (pmus->count == CORE_PMUS_MAX || strlen(name) >= sizeof(pmu->name))
		return;
	snprintf(directory, sizeof(directory), DEVICES "/%s", name);
	pmu->cpus = read_line(directory, "cpus");
	if (!pmu->cpus)
		return;
	type = read_line(directory, "type");
	pmu->type = type ? strtoul(type, NULL, 10) : 0;
	free(type);
	strcpy(pmu->name, name);
	pmus->count++;
}

static void read_pmus(struct core_pmus *pmus)
{
	char path[256];
	struct dirent *entry;
	DIR *directory;

	snprintf(path, sizeof(path), "%s" DEVICES, core_pmus_root);
	directory = opendir(path);
	if (!directory)
		return;
	while ((entry = readdir(directory))) {
		if (!strcmp(entry->d_name, "cpu"))
			pmus->plain = true;
		else if (entry->d_name[0] != '.')
			add_pmu(pmus, entry->d_name);
	}
	closedir(directory);
}

static void read_processor(struct core_pmus *pmus)
{
	char path[256], line[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/proc/cpuinfo", core_pmus_root);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file) && line[0] != '\n') {
		sscanf(line, "vendor_id : %15s", pmus->vendor);
		sscanf(line, "cpu family : %d", &pmus->family);
		sscanf(line, "model : %d", &pmus->model);
	}
	if (file)
		fclose(file);
}

const struct core_pmus *core_pmus__here(void)
{
	if (is_read)
		return &this_machine;
	this_machine.online = read_line("/sys/devices/system/cpu", "online");
	read_pmus(&this_machine);
	read_processor(&this_machine);
	is_read = true;
	return &this_machine;
}

bool core_pmus__is_online(const struct core_pmus *pmus, int cpu)
{
	return !pmus->online || list_holds(pmus->online, cpu);
}

int core_pmus__spare(const char *cpus)
{
	char *list = strdup(cpus);

	if (!list)
		return -ENOMEM;
	core_pmus__here();
	free(this_machine.spared);
	this_machine.spared = list;
	return 0;
}

bool core_pmus__is_spared(const struct core_pmus *pmus, int cpu)
{
	return pmus->spared && list_holds(pmus->spared, cpu);
}

const struct core_pmu *core_pmus__of(const struct core_pmus *pmus, int cpu)
{
	for (int i = 0; i < pmus->count; i++)
		if (list_holds(pmus->all[i].cpus, cpu))
			return &pmus->all[i];
	return NULL;
}

int core_pmus__types(const struct core_pmus *pmus)
{
	int types = 0;

	for (int i = 0; i < pmus->count; i++)
		types += pmus->all[i].cpus[0] != '\n';
	return types;
}

bool core_pmus__zen(const struct core_pmus *pmus)
{
	return !strcmp(pmus->vendor, "AuthenticAMD") &&
	       (pmus->family > 0x17 || (pmus->family == 0x17 && pmus->model >= 0x30));
}

void core_pmus__forget(void)
{
	for (int i = 0; i < this_machine.count; i++)
		free(this_machine.all[i].cpus);
	free(this_machine.online);
	free(this_machine.spared);
	this_machine = (struct core_pmus){};
	is_read = false;
}

// SPDX-License-Identifier: GPL-2.0
#include "slices.h"

#include <dirent.h>
#include <stdio.h>

uint64_t slices__mean_ns(pid_t pid)
{
	unsigned long long ran_ns, waited_ns, slices, total_ns = 0, total_slices = 0;
	char path[64];
	struct dirent *entry;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	while (tasks && (entry = readdir(tasks))) {
		FILE *file;

		/* The process itself has such a file, too: that of its first thread (`..`). */
		if (*entry->d_name == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/schedstat", pid, entry->d_name);
		file = fopen(path, "re");
		if (file && fscanf(file, "%llu %llu %llu", &ran_ns, &waited_ns, &slices) == 3) {
			total_ns += ran_ns;
			total_slices += slices;
		}
		if (file)
			fclose(file);
	}
	if (tasks)
		closedir(tasks);
	return total_slices ? total_ns / total_slices : 0;
}

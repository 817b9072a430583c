// SPDX-License-Identifier: GPL-2.0
#include "thread_timers.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

/* Hooks come and go meanwhile, and what is read of /proc. */
#define FILES_OF_OTHERS 512

/* Two files for each timer: the event and its link. */
static int timers_that_fit(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur == RLIM_INFINITY)
		return INT_MAX;
	return files.rlim_cur > FILES_OF_OTHERS ? (files.rlim_cur - FILES_OF_OTHERS) / 2 : 0;
}

/* Threads that cannot have a timer are counted: the others' samples are not all. */
static int open_one(struct thread_timers *totals, struct events *timers, struct bpf_program *program,
		    struct perf_event_attr attr, pid_t tid)
{
	int err = timers->count < timers_that_fit() ? events__add(timers, attr, program, tid, -1) : -EMFILE;

	if (err == -ESRCH) /* it has ended meanwhile */
		return 0;
	totals->threads++;
	if (err != -EMFILE && err != -ENFILE && err != -ENOMEM)
		return err;
	totals->missing++;
	return 0;
}

int thread_timers__open(struct thread_timers *totals, struct events *timers, struct bpf_program *program,
			struct perf_event_attr attr, pid_t pid)
{
	char path[32];
	struct dirent *entry;
	DIR *tasks;
	int err = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	if (!tasks) /* it has ended meanwhile */
		return errno == ENOENT ? 0 : -errno;
	attr.inherit = 1;
	while (!err && (entry = readdir(tasks))) {
		pid_t tid = atoi(entry->d_name);

		if (tid > 0)
			err = open_one(totals, timers, program, attr, tid);
	}
	closedir(tasks);
	return err;
}

// SPDX-License-Identifier: GPL-2.0
#include "thread_timers.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "kernel/clock.h"

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
static int open_one(struct thread_timers *timers, pid_t tid)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = timers->period_ns,
		.inherit = 1,
	};
	int err = timers->events.count < timers_that_fit() ? events__add(&timers->events, attr, timers->program, tid, -1) : -EMFILE;

	if (err == -ESRCH) /* it has ended meanwhile */
		return 0;
	timers->found++;
	if (err != -EMFILE && err != -ENFILE && err != -ENOMEM)
		return err;
	timers->refused++;
	return 0;
}

/* One process by its number is our own traffic, whose threads are all there before. */
static bool has_inherited(struct thread_timers *timers, pid_t tid)
{
	return !timers->pid && births__inherited(&timers->births, tid);
}

static int open_process(struct thread_timers *timers, pid_t pid)
{
	char path[32];
	struct dirent *entry;
	DIR *tasks;
	int err = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	if (!tasks) /* it has ended meanwhile */
		return errno == ENOENT ? 0 : -errno;
	while (!err && (entry = readdir(tasks))) {
		pid_t tid = atoi(entry->d_name);

		if (tid > 0 && !has_inherited(timers, tid))
			err = open_one(timers, tid);
	}
	closedir(tasks);
	return err;
}

static int by_number(const void *left, const void *right)
{
	return *(const pid_t *)left - *(const pid_t *)right;
}

/* Where timers were kept, a process that was forked since has inherited its parent's, or is among the births without. */
static bool has_timers(const struct thread_timers *timers, const struct watched_process *one)
{
	return one->by == WATCHED_BY_FORK ||
	       bsearch(&one->pid, timers->pids, timers->pid_count, sizeof(one->pid), by_number);
}

/* Those that have begun without a timer since others were opened. */
static int open_births(struct thread_timers *timers)
{
	struct births *births = &timers->births;
	unsigned int lost = births__lost(births);
	int err = 0;

	births__take(births);
	for (size_t i = 0; i < births->count; i++)
		if (births->taken[i].birth == BIRTH_UNTIMED)
			err = open_one(timers, births->taken[i].tid) ?: err;
	timers->found += lost;
	timers->refused += lost;
	return err;
}

static int open_watched(struct thread_timers *timers)
{
	const struct watched *watched = &timers->watched;
	bool kept = timers->events.count, changed;
	int err = 0;

	/* Before the list of processes: what is forked after it was read is noted. */
	births__begin(&timers->births, kept);
	changed = watched__update(&timers->watched);
	for (size_t i = 0; (changed || !kept) && i < watched->count; i++)
		if (!kept || !has_timers(timers, &watched->processes[i]))
			err = open_process(timers, watched->processes[i].pid) ?: err;
	births__opened(&timers->births);
	err = open_births(timers) ?: err;
	if (kept && !changed)
		return err;
	for (size_t i = 0; i < watched->count; i++)
		timers->pids[i] = watched->processes[i].pid;
	timers->pid_count = watched->count;
	qsort(timers->pids, timers->pid_count, sizeof(*timers->pids), by_number);
	return err;
}

static unsigned int larger(unsigned int left, unsigned int right)
{
	return left > right ? left : right;
}

int thread_timers__arm(struct thread_timers *timers, uint64_t *since_ns)
{
	int err = 0;

	if (!timers->pid)
		err = open_watched(timers);
	else if (!timers->events.count)
		err = open_process(timers, timers->pid);
	timers->threads = larger(timers->threads, timers->found);
	timers->untimed = larger(timers->untimed, timers->refused);
	*since_ns = now_ns();
	return events__switch(&timers->events, PERF_EVENT_IOC_ENABLE) ?: err;
}

int thread_timers__disarm(struct thread_timers *timers)
{
	return events__switch(&timers->events, PERF_EVENT_IOC_DISABLE);
}

int thread_timers__used(struct thread_timers *timers, uint64_t *ns)
{
	uint64_t read_ns;
	int err = events__read(&timers->events, &read_ns);

	if (err)
		return err;
	*ns = read_ns - timers->read_ns;
	timers->read_ns = read_ns;
	return 0;
}

void thread_timers__rest(struct thread_timers *timers)
{
	if (timers->events.count <= TIMERS_PER_BURST)
		thread_timers__close(timers);
}

void thread_timers__close(struct thread_timers *timers)
{
	if (!timers->pid && timers->events.count)
		births__end(&timers->births);
	events__close(&timers->events);
	timers->read_ns = 0;
	timers->found = timers->refused = 0;
}

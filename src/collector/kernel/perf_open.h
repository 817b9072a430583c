/* SPDX-License-Identifier: GPL-2.0-only */
/* perf_open.h - calls perf_event_open(2). */
#ifndef COLLECTOR_PERF_OPEN_H
#define COLLECTOR_PERF_OPEN_H

#include <sys/types.h>

#include <linux/perf_event.h>

#define PERF_ALL_TASKS -1
#define PERF_OWN_TASK 0

/* Open an event of a task on a CPU. Return the descriptor or -errno. */
int perf_open(struct perf_event_attr *attr, pid_t task, int cpu);
/* Open an event for this thread, in the group of another event (a descriptor) or of its own (-1). Return as above. */
int perf_open_thread(struct perf_event_attr *attr, int group);
/* Return the length of a time stamp counter cycle, as the kernel converts it for an open event; 0 if unknown. */
double perf_tsc_cycle_ns(int fd);

#endif

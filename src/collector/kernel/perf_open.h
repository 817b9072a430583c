/* SPDX-License-Identifier: GPL-2.0 */
/* perf_open.h - calls perf_event_open(2) for all tasks of one CPU. */
#ifndef COLLECTOR_PERF_OPEN_H
#define COLLECTOR_PERF_OPEN_H

#include <linux/perf_event.h>

/* Return the descriptor or -errno. */
int perf_open(struct perf_event_attr *attr, int cpu);
/* Return the length of a time stamp counter cycle, as the kernel converts it for an open event; 0 if unknown. */
double perf_tsc_cycle_ns(int fd);

#endif

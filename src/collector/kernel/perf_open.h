/* SPDX-License-Identifier: GPL-2.0 */
/* perf_open.h - perf_event_open(2), of whatever runs on one CPU. */
#ifndef COLLECTOR_PERF_OPEN_H
#define COLLECTOR_PERF_OPEN_H

#include <linux/perf_event.h>

/* The descriptor, or -errno. */
int perf_open(struct perf_event_attr *attr, int cpu);
/* How long a cycle of the time stamp counter is, as the kernel converts it for an event that is open; 0: it does not say. */
double perf_tsc_cycle_ns(int fd);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/* pmu.h - the events that can be counted or sampled, by perf's names. */
#ifndef COLLECTOR_PMU_H
#define COLLECTOR_PMU_H

#include <stdbool.h>
#include <stddef.h>

#include <linux/types.h>

struct event_row {
	char name[24];
	const char *unit;
	__u32 type;
	__u64 config;
};

/* An event by perf's name, also a raw one of this processor's own PMU, such as r03 (perf-list(1)); false: no such event. */
bool pmu__find(const char *name, struct event_row *row);
/* Its perf_event_attr.config on this CPU. */
__u64 pmu__config(const struct event_row *row, int cpu);
/* Why it could not be opened. */
void pmu__explain(int err, char *reason, size_t size);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/* pmu.h - hybrid CPUs have one core PMU per core type. */
#ifndef COLLECTOR_PMU_H
#define COLLECTOR_PMU_H

#include <linux/types.h>

/*
 * What to put into bits 63:32 of perf_event_attr.config for a generic event on this CPU: the type of the core PMU
 * that owns the CPU (PERF_PMU_CAP_EXTENDED_HW_TYPE, include/uapi/linux/perf_event.h), 0 on machines with one
 * core type and for software events.
 */
__u64 pmu__extended_type(__u32 event_type, int cpu);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* measure.h - compares what the events of a PMU count with work whose counts are known. */
#ifndef COLLECTOR_MEASURE_H
#define COLLECTOR_MEASURE_H

#include <stddef.h>

/*
 * Do the known work on a CPU and print as JSON what each event counted in user mode. Needs no BPF, and no root unless
 * kernel.perf_event_paranoid exceeds 2. llc_bytes: size of the last-level cache, 0 if unknown. Return 0 or -errno.
 */
int measure__print(int cpu, size_t llc_bytes);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/* cells.h - the per-CPU cells of the byte and call counters, summed, as the record's bytes[] and calls[]. */
#ifndef COLLECTOR_CELLS_H
#define COLLECTOR_CELLS_H

#include <jansson.h>

#include "abi.h"

struct copyscope;

/* [{side, hook, calls, bytes, zerocopy_calls, zerocopy_bytes, spliced_calls, spliced_bytes}]; zero is a count: the
 * hook was attached. */
json_t *cells__bytes_json(const struct copyscope *skel);
/*
 * [{side, syscall, calls, bytes, timed_calls, on_cpu_ns, softirq_ns, blocked_ns, ...histogram}] of the calls that
 * happened. Times are totals of all calls, estimated from the timed ones; histograms hold the timed ones.
 */
json_t *cells__calls_json(const struct copyscope *skel);
/* {unit, buckets: [[low, high, count]]} of HIST_SLOTS slots. */
json_t *cells__histogram_json(const __u64 *slots);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* cells.h - sums the per-CPU cells of the byte and call counters into the record's bytes[] and calls[]. */
#ifndef COLLECTOR_CELLS_H
#define COLLECTOR_CELLS_H

#include <jansson.h>

#include "abi.h"

struct copyscope;

/*
 * Return [{side, hook, calls, bytes, zerocopy_calls, zerocopy_bytes, spliced_calls, spliced_bytes}]. Zeros are
 * included.
 */
json_t *cells__bytes_json(const struct copyscope *skel);
/*
 * Return [{side, syscall, calls, bytes, timed_calls, on_cpu_ns, softirq_ns, blocked_ns, ...histogram}] for calls with
 * a nonzero count. Times are totals of all calls, extrapolated from the timed ones. Histograms contain only timed
 * calls.
 */
json_t *cells__calls_json(const struct copyscope *skel);
/*
 * Return the name of a thread or process (WATCH_COMM bytes) as a string. Names are arbitrary bytes, but JSON must be UTF-8, so
 * other characters than printable ASCII are replaced.
 */
json_t *cells__comm_json(const void *comm);
/* Return {unit, buckets: [[low, high, count]]} for HIST_SLOTS slots. */
json_t *cells__histogram_json(const __u64 *slots);

#endif

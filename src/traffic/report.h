/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_REPORT_H
#define TRAFFIC_REPORT_H

#include <jansson.h>

#include "report_set.h"
#include "flow.h"
#include "histogram.h"
#include "options.h"
#include "tcp_state.h"

/* Parts of the JSON objects that sender and receiver print: totals (events `mark` and `finished`) and reports. Totals count from
 * the start of the run. */

/* Add a time stamp, and CPU time and context switches of this process. */
void report__add_usage(json_t *totals);
/* Add the counters of all sending threads. `zerocopy` is NULL if the strategy is not asynchronous. */
void report__add_sent(json_t *totals, const struct send_counts *counts,
		      const struct zerocopy_counts *zerocopy, bool gives_pages, bool in_ring);

/* Length of a run, which shows whether the run was too short to measure the network. */
struct run_length {
	uint64_t bytes;
	uint64_t buffered_bytes;	/* capacity of the socket buffers of both ends */
	uint64_t sending_ns;
};

/* Add role, pid, options, limits, errors (releases the reference), interrupted and too_short. */
void report__add_run(json_t *report, const struct options *options, bool interrupted, json_t *errors,
		     const struct run_length *length);

struct thread_summary {
	long tid;
	int64_t cpu_ns;			/* CPU time; -1: it is reported for another connection of the same thread */
	uint64_t bytes;
	int64_t messages;		/* number of messages; -1: unknown */
	uint64_t calls;
	int sndbuf_bytes;
	int rcvbuf_bytes;
	char congestion[CONGESTION_NAME_BYTES];
	struct tcp_state tcp;
};

json_t *report__thread(const struct thread_summary *thread);
/* Return a histogram as JSON, with its quantiles; null for NULL. */
json_t *report__histogram(const struct histogram *histogram);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_REPORT_H
#define TRAFFIC_REPORT_H

#include <jansson.h>

#include "report_set.h"
#include "flow.h"
#include "histogram.h"
#include "options.h"
#include "tcp_state.h"

/* The pieces that marks and reports of both sides are made of. Totals are cumulative. */

/* Time stamp, CPU time and context switches of this process. */
void report__add_usage(json_t *totals);
/* What the sending threads did; `zerocopy` is NULL for strategies that are not asynchronous. */
void report__add_sent(json_t *totals, const struct send_counts *counts,
		      const struct zerocopy_counts *zerocopy, bool gives_pages, bool in_ring);

/* Why a run says nothing about the network: it fits into the buffers, or is over too soon. */
struct run_length {
	uint64_t bytes;
	uint64_t buffered_bytes;	/* what the socket buffers of both ends can hold */
	uint64_t sending_ns;
};

/* role, impl, options, limits, errors (taken), interrupted, too_short */
void report__add_run(json_t *report, const struct options *options, bool interrupted, json_t *errors,
		     const struct run_length *length);

struct thread_summary {
	long tid;
	int64_t cpu_ns;			/* -1: it stands on another connection of the same thread */
	uint64_t bytes;
	int64_t messages;		/* -1: unknown */
	uint64_t calls;
	int sndbuf_bytes;
	int rcvbuf_bytes;
	char congestion[CONGESTION_NAME_BYTES];
	struct tcp_state tcp;
};

json_t *report__thread(const struct thread_summary *thread);
json_t *report__histogram(const struct histogram *histogram);	/* NULL: null */

#endif

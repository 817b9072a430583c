/* SPDX-License-Identifier: GPL-2.0 */
/* look_cost.bpf.h - what a look at the clock and the counters costs, and what is done with it in a timed call. */
#ifndef COPYSCOPE_LOOK_COST_BPF_H
#define COPYSCOPE_LOOK_COST_BPF_H

#include "call_stack.bpf.h"

/* What READ_COST_READS looks at the clock cost, and as many at the clock and the counters. */
__u64 clock_cost_ns;
__u64 read_cost_ns;
/* What these added to each counter: a look at the counters is work that they count. */
__u64 read_cost_counts[COUNTERS_MAX];
/* As many in full: what a hook of a timed call does, and one of a call that is only counted does not. */
__u64 look_cost_ns;

/* Of no task. */
static struct call_stack looking = { .timed = 1, .depth = 1, .frames[0].category = CATEGORY_SEND };

/* Attached to nothing: the collector runs it to know the instrument's own cost. */
SEC("?raw_tp")
int on_read_cost(void *ctx)
{
	struct reading first = {}, now = {};
	__u64 began, between;

	began = bpf_ktime_get_ns();
	for (int i = 0; i < READ_COST_READS; i++)
		now.ns = bpf_ktime_get_ns();
	between = bpf_ktime_get_ns();
	clock_cost_ns = between - began;
	read_now(&first);
	began = bpf_ktime_get_ns();
	for (int i = 0; i < READ_COST_READS; i++)
		read_now(&now);
	read_cost_ns = bpf_ktime_get_ns() - began;
	EACH_COUNTER(i)
		read_cost_counts[i] = now.counters[i] - first.counters[i];
	began = bpf_ktime_get_ns();
	for (int i = 0; i < READ_COST_READS; i++) {
		read_if_timed(&looking, &now);
		charge(&looking, &now);
	}
	look_cost_ns = bpf_ktime_get_ns() - began;
	return 0;
}

#endif

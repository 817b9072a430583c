/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * counters.bpf.h - reads the clock and the perf counters of this CPU together.
 *
 * The events count per CPU, for all tasks. A task reads them only between two context switches and so on one CPU,
 * where the difference belongs to the task and to its interrupts. This needs no event per thread, and covers
 * threads that start later.
 */
#ifndef COPYSCOPE_COUNTERS_BPF_H
#define COPYSCOPE_COUNTERS_BPF_H

#include "target.bpf.h"

/* Number of counters that are read; the verifier removes the code for other counters. */
const volatile __u32 counters_cnt;
/* Event i of CPU c is entry c * COUNTERS_MAX + i. The collector creates the map's events. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, COUNTERS_MAX);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} counter_events SEC(".maps");

#define EACH_COUNTER(i) \
	_Pragma("unroll") for (__u32 i = 0; i < COUNTERS_MAX; i++) if (i < counters_cnt)
#define EACH_COUNTER_BACK(i) \
	_Pragma("unroll") for (__u32 i = COUNTERS_MAX - 1; i < COUNTERS_MAX; i--) if (i < counters_cnt)

static __always_inline __u64 read_counter(__u32 i)
{
	struct bpf_perf_event_value value = {};
	__u32 index = bpf_get_smp_processor_id() * COUNTERS_MAX + i;

	/* A CPU without the event always reads 0, which adds nothing. */
	if (bpf_perf_event_read_value(&counter_events, index, &value, sizeof(value))) {
		count_loss(LOSS_COUNTER_UNREADABLE);
		return 0;
	}
	return value.counter;
}

/*
 * At the start of a copy, read the clock last. At its end, read the clock first and the counters in reverse order.
 * The interval then contains as little as possible of the reading itself, least for the last counter. Return the
 * duration of the reading: an interruption during it would be in some values and not in others.
 */
static __always_inline __u64 read_now(struct reading *now, bool begins)
{
	__u64 before = bpf_ktime_get_ns(), after;

	if (begins) {
		EACH_COUNTER(i)
			now->counters[i] = read_counter(i);
	} else {
		EACH_COUNTER_BACK(i)
			now->counters[i] = read_counter(i);
	}
	after = bpf_ktime_get_ns();
	now->ns = begins ? after : before;
	return after - before;
}

static __always_inline void copy_reading(struct reading *to, const struct reading *from)
{
	to->ns = from->ns;
	EACH_COUNTER(i)
		to->counters[i] = from->counters[i];
}

static __always_inline void add_reading(struct reading *sum, const struct reading *part)
{
	sum->ns += part->ns;
	EACH_COUNTER(i)
		sum->counters[i] += part->counters[i];
}

static __always_inline void subtract_reading(struct reading *sum, const struct reading *part)
{
	sum->ns -= part->ns;
	EACH_COUNTER(i)
		sum->counters[i] -= part->counters[i];
}

/* sum += later - earlier */
static __always_inline void add_between(struct reading *sum, const struct reading *earlier, const struct reading *later)
{
	sum->ns += later->ns - earlier->ns;
	EACH_COUNTER(i)
		sum->counters[i] += later->counters[i] - earlier->counters[i];
}

#endif

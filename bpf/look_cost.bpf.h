/* SPDX-License-Identifier: GPL-2.0 */
/*
 * look_cost.bpf.h - what a copy's own looks at the clock and the counters cost, and how much of it is counted as the copy's.
 *
 * A look is work that the counters count, and more of it the more of what it needs the copy has thrown out of the caches. So
 * copies are made here with looks and without, of several sizes: what they differ by is the looks'. And so is what is counted in
 * a function that does nothing, where the way into a hook and out of it is, too.
 */
#ifndef COPYSCOPE_LOOK_COST_BPF_H
#define COPYSCOPE_LOOK_COST_BPF_H

#include "call_stack.bpf.h"

/* Set before a run: 0, LOOK_COPY_BYTES / 8 or LOOK_COPY_BYTES. */
__u32 look_copy_bytes;
/* LOOKS times the clock, and as many pairs of looks with nothing between them. */
__u64 clock_cost_ns;
__u64 look_cost_ns;
/* What LOOKS copies seem to have cost each counter by their looks, and what they cost. */
__u64 looked_counts[COUNTERS_MAX];
__u64 plain_counts[COUNTERS_MAX];

/* The same of one call of a function that does nothing. */
__u64 nothing_counts[COUNTERS_MAX];

static char look_from[LOOK_COPY_BYTES], look_to[LOOK_COPY_BYTES];

static __always_inline void copy_something(void)
{
	if (look_copy_bytes == LOOK_COPY_BYTES)
		bpf_probe_read_kernel(look_to, LOOK_COPY_BYTES, look_from);
	else if (look_copy_bytes)
		bpf_probe_read_kernel(look_to, LOOK_COPY_BYTES / 8, look_from);
}

/* The difference of so many copies and twice as many: what begins and ends a count is in both. */
static __noinline int count_plain(void)
{
	struct reading first = {}, second = {}, third = {};

	read_now(&first, true);
	for (int i = 0; i < LOOKS; i++)
		copy_something();
	read_now(&second, true);
	for (int i = 0; i < 2 * LOOKS; i++)
		copy_something();
	read_now(&third, true);
	EACH_COUNTER(i)
		plain_counts[i] = third.counters[i] - 2 * second.counters[i] + first.counters[i];
	return 0;
}

/* As the programs of hooked functions do it. */
static __always_inline bool look_once(bool begins)
{
	struct call_stack *stack = find_open(WITHIN_ROOT);

	if (!stack)
		return false;
	if (begins)
		go_on(stack);
	else
		charge(stack);
	finish(stack);
	return true;
}

static __always_inline struct call_frame *push_timed(struct call_stack *stack)
{
	struct call_frame *frame;

	push(stack, CATEGORY_COPY_OUT, 0, ROW_copy_out);
	frame = top_frame(stack);
	if (!frame)
		return NULL;
	stack->timed += !frame->timed;
	frame->timed = 1;
	return frame;
}

static __noinline int count_looked(void)
{
	struct call_stack *stack = find_open(WITHIN_NOTHING);
	struct call_frame *frame;
	__u64 began;

	if (!stack)
		return 1;
	frame = push_timed(stack);
	finish(stack);
	if (!frame)
		return 1;
	began = bpf_ktime_get_ns();
	for (int i = 0; i < LOOKS; i++) {
		look_once(true);
		copy_something();
		look_once(false);
	}
	look_cost_ns = bpf_ktime_get_ns() - began;
	EACH_COUNTER(i)
		looked_counts[i] = frame->spent.counters[i];
	pop(stack);
	return 0;
}

/* Attached to nothing: the collector runs it to know the instrument's own cost. */
SEC("?raw_tp")
int on_read_cost(void *ctx)
{
	__u64 began = bpf_ktime_get_ns();

	for (int i = 0; i < LOOKS; i++)
		clock_cost_ns = bpf_ktime_get_ns() - began;
	count_plain();
	return count_looked();
}

/* At the entry and the exit of NOTHING (hooks.h). In name only: the collector makes them fentry and fexit. */
SEC("?kprobe")
int on_nothing_enter(void *ctx)
{
	struct call_stack *stack = find_open(WITHIN_NOTHING);

	if (!stack)
		return 0;
	push_timed(stack);
	go_on(stack);
	finish(stack);
	return 0;
}

SEC("?kretprobe")
int on_nothing_leave(void *ctx)
{
	struct call_stack *stack = find_open(WITHIN_ROOT);
	struct call_frame *frame;

	if (!stack)
		return 0;
	charge(stack);
	frame = top_frame(stack);
	if (frame) {
		EACH_COUNTER(i)
			nothing_counts[i] = frame->spent.counters[i];
	}
	pop(stack);
	finish(stack);
	return 0;
}

#endif

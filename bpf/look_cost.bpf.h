/* SPDX-License-Identifier: GPL-2.0 */
/*
 * look_cost.bpf.h - how long a look at the clock and the counters takes: by it the gate is chosen, and a look that was stopped is
 * known.
 */
#ifndef COPYSCOPE_LOOK_COST_BPF_H
#define COPYSCOPE_LOOK_COST_BPF_H

#include "call_stack.bpf.h"

/* Of LOOKS pairs of looks. */
__u64 look_cost_ns;

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

static __always_inline bool push_timed(struct call_stack *stack)
{
	struct call_frame *frame;

	push(stack, CATEGORY_COPY_OUT, 0, ROW_copy_out);
	frame = top_frame(stack);
	if (!frame)
		return false;
	stack->timed += !frame->timed;
	frame->timed = 1;
	return true;
}

/* Attached to nothing: the collector runs it. */
SEC("?raw_tp")
int on_read_cost(void *ctx)
{
	struct call_stack *stack = find_open(WITHIN_NOTHING);
	bool pushed;
	__u64 began;

	if (!stack)
		return 1;
	pushed = push_timed(stack);
	finish(stack);
	if (!pushed)
		return 1;
	began = bpf_ktime_get_ns();
	for (int i = 0; i < LOOKS; i++) {
		look_once(true);
		look_once(false);
	}
	look_cost_ns = bpf_ktime_get_ns() - began;
	pop(stack);
	return 0;
}

#endif

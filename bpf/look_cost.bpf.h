/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * look_cost.bpf.h - measures how long a reading of the clock and the counters takes. copyscope uses this to choose how
 * many copies are timed (gate.bpf.h), and the collector uses it to recognise disturbed readings.
 */
#ifndef COPYSCOPE_LOOK_COST_BPF_H
#define COPYSCOPE_LOOK_COST_BPF_H

#include "call_stack.bpf.h"

/* Duration of LOOKS pairs of readings. */
__u64 look_cost_ns;

/* Take one reading exactly as the programs of hooked functions do. */
static __always_inline bool take_one_reading(bool begins)
{
	struct call_stack *stack = find_open(WITHIN_ROOT);

	if (!stack)
		return false;
	if (begins)
		resume_charging(stack);
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

/* Attached to nothing; the collector runs it. */
SEC("?raw_tp")
int on_read_cost(void *ctx)
{
	struct call_stack *stack = find_open(WITHIN_NOTHING);
	bool pushed;
	__u64 start_ns;

	if (!stack)
		return 1;
	pushed = push_timed(stack);
	finish(stack);
	if (!pushed)
		return 1;
	start_ns = bpf_ktime_get_ns();
	for (int i = 0; i < LOOKS; i++) {
		take_one_reading(true);
		take_one_reading(false);
	}
	look_cost_ns = bpf_ktime_get_ns() - start_ns;
	pop(stack);
	return 0;
}

#endif

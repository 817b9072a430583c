/* SPDX-License-Identifier: GPL-2.0 */
/* call_stack.bpf.h - the call stack of a task: which copy is innermost, and what it has spent since the last event. */
#ifndef COPYSCOPE_CALL_STACK_BPF_H
#define COPYSCOPE_CALL_STACK_BPF_H

#include "bounded.bpf.h"
#include "context.bpf.h"
#include "gate.bpf.h"
#include "hooks.h"
#include "call_stacks.bpf.h"
#include "function_cells.bpf.h"

/* A task that is preempted each time it looks at the clock is not to be expected. */
#define LOOK_ATTEMPTS 4

/* A look that takes longer was stopped, by an interrupt or by a hypervisor: several times what it usually takes. */
__u64 look_limit_ns = ~0ULL;

/* NULL when the stack is empty. */
static __always_inline struct call_frame *top_frame(struct call_stack *stack)
{
	__u32 top = stack->depth - 1;

	if (top >= CALL_STACK_DEPTH)
		return NULL;
	return &stack->frames[BOUNDED(top, CALL_STACK_DEPTH)];
}

static __always_inline __u32 innermost(struct call_stack *stack)
{
	struct call_frame *frame = top_frame(stack);

	return frame ? frame->category : CATEGORY_NONE;
}

/*
 * The task's own clock and counters: those of its CPU, less what they did while it was off the CPU. They stand still while
 * it is, wherever in a program it was preempted. Returns whether the look was stopped: then it is none.
 */
static __noinline int look(struct call_stack *stack, struct reading *now, int begins)
{
	for (int i = 0; i < LOOK_ATTEMPTS; i++) {
		__u32 switches = *(volatile __u32 *)&stack->switches;
		__u64 took;

		barrier();
		took = read_now(now, begins);
		subtract_reading(now, &stack->off_cpu);
		barrier();
		if (*(volatile __u32 *)&stack->switches == switches)
			return took > look_limit_ns;
		/* It was preempted in between: what was read is of before and after. */
	}
	return 1;
}

/* The first thing that a program does: what was spent until now is the innermost copy's, if that is timed. */
static __always_inline void charge(struct call_stack *stack)
{
	struct call_frame *frame = stack->timed ? top_frame(stack) : NULL;
	struct reading now = {};

	if (!frame || !frame->timed)
		return;
	frame->stopped |= look(stack, &now, 0);
	add_between(&frame->spent, &stack->since, &now);
}

/* And the last: from now on it is the innermost copy's. */
static __always_inline void go_on(struct call_stack *stack)
{
	struct call_frame *frame = stack->timed ? top_frame(stack) : NULL;

	if (frame && frame->timed)
		frame->stopped |= look(stack, &stack->since, 1);
}

/* A frame that is pushed counts in `softirqs` and `timed` for as long as it is on the stack: not one that did not fit. */
static __always_inline void push(struct call_stack *stack, __u32 category, __u64 bytes, __u32 row)
{
	static const struct reading none = {};
	struct call_frame *frame;

	if (stack->depth >= CALL_STACK_DEPTH) {
		count_loss(LOSS_CALL_STACK_OVERFLOW);
		return;
	}
	stack->depth++;
	frame = top_frame(stack);
	if (!frame)
		return;
	frame->category = category;
	frame->bytes = bytes;
	frame->row = row;
	frame->stopped = 0;
	frame->timed = category < CATEGORY_CNT && choose(stack);
	stack->timed += frame->timed;
	stack->softirqs += row == ROW_SOFTIRQ;
	copy_reading(&frame->spent, &none);
}

/* The innermost frame is over. */
static __always_inline void pop(struct call_stack *stack)
{
	struct call_frame *frame = top_frame(stack);

	if (!frame)
		return;
	stack->softirqs -= frame->row == ROW_SOFTIRQ;
	stack->timed -= frame->timed;
	stack->depth--;
}

/*
 * Drops what lies above the last frame of the row: its exit did not fire (a kretprobe without a free instance, a program
 * that was skipped). False when there is no such frame, at least not above the softirq that we are in: it was entered
 * before we were attached.
 */
static __always_inline bool unwind(struct call_stack *stack, __u32 row)
{
	__u32 depth = stack->depth, timed = stack->timed;

	for (int i = 0; i < CALL_STACK_DEPTH; i++) {
		__u32 index = depth - 1 - i;
		struct call_frame *frame;

		if (index >= CALL_STACK_DEPTH)
			break;
		frame = &stack->frames[BOUNDED(index, CALL_STACK_DEPTH)];
		if (frame->row == row) {
			if (i) {
				stack->depth = depth - i;
				stack->timed = timed;
				/* What it spent was taken for that of another. */
				frame->stopped = 1;
				count_loss(LOSS_CALL_STACK_BROKEN);
			}
			return true;
		}
		if (frame->row == ROW_SOFTIRQ)
			break;
		timed -= frame->timed;
	}
	return false;
}

/* The copy that a bracket announced ends with the next event, and did not happen if that event takes references. */
static __always_inline void end_bracket(struct call_stack *stack, int copied)
{
	struct call_frame *frame = top_frame(stack);

	if (!frame || frame->row != ROW_BRACKET)
		return;
	if (copied)
		count_copy(stack, frame, frame->bytes);
	pop(stack);
}

/* What must be open already. */
enum within { WITHIN_NOTHING, WITHIN_ROOT };

/* NULL: there is none, and none is wanted. */
static __always_inline struct call_stack *stack_of(__u32 task, enum within within)
{
	struct call_stack *stack = find_stack(task);

	if (!stack && within == WITHIN_NOTHING)
		stack = make_stack(task);
	return stack;
}

/* A program works on the stack below and was interrupted. NULL as for begin(). */
static __noinline struct call_stack *begin_softirq_stack(enum within within)
{
	struct call_stack *stack = stack_of(SOFTIRQ_STACK | bpf_get_smp_processor_id(), within);

	if (!stack || (within == WITHIN_ROOT && !stack->depth))
		return NULL;
	if (stack->busy) {
		count_loss(LOSS_CALL_STACK_BROKEN);
		return NULL;
	}
	stack->busy = 1;
	barrier();
	if (!stack->depth) {
		stack->side = current_side();
		/* Until it ends, the clock of the stack below stands still (rest_below()). */
		read_now(&stack->off_cpu_since, false);
	}
	return stack;
}

/* The stack of the current task, or of the softirq that interrupted a program which works on that. NULL: nothing is open, or busy. */
static __always_inline struct call_stack *find_open(enum within within)
{
	struct call_stack *stack = stack_of(task_key(bpf_get_current_pid_tgid()), within);

	if (!stack)
		return NULL;
	if (stack->busy)
		return begin_softirq_stack(within);
	if (within == WITHIN_ROOT && !stack->depth)
		return NULL;
	stack->busy = 1;
	/* From here on sched_switch minds the task's clock: before it is read. */
	barrier();
	if (!stack->depth)
		stack->side = current_side();
	return stack;
}

/* NULL also while function hooks do not count. */
static __always_inline struct call_stack *begin(enum within within)
{
	return functions_on ? find_open(within) : NULL;
}

/* The end of a program's work. */
static __always_inline void finish(struct call_stack *stack)
{
	barrier();
	stack->busy = 0;
}

#endif

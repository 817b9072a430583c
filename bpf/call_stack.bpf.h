/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * call_stack.bpf.h - the call stack of a task: the innermost copy, and the time that it has spent since the last event.
 */
#ifndef COPYSCOPE_CALL_STACK_BPF_H
#define COPYSCOPE_CALL_STACK_BPF_H

#include "bounded.bpf.h"
#include "context.bpf.h"
#include "gate.bpf.h"
#include "hooks.h"
#include "call_stacks.bpf.h"
#include "function_cells.bpf.h"

/* Attempts at a reading without preemption. A task that is preempted in every attempt is very unlikely. */
#define READING_ATTEMPTS 4

/*
 * Longest duration of a valid reading; longer ones were disturbed by an interrupt or a hypervisor. The collector sets
 * this to several times the usual duration.
 */
__u64 look_limit_ns = ~0ULL;

/* Return the innermost frame, or NULL if the stack is empty. */
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
 * Read the task's own clock and counters: the values of its CPU, minus their increase while the task was off the CPU,
 * even if it was preempted inside a BPF program. Return 1 if the reading was disturbed and must not be used.
 */
static __noinline int read_task_clock(struct call_stack *stack, struct reading *now, int begins)
{
	for (int i = 0; i < READING_ATTEMPTS; i++) {
		__u32 switches = *(volatile __u32 *)&stack->switches;
		__u64 took;

		barrier();
		took = read_now(now, begins);
		subtract_reading(now, &stack->off_cpu);
		barrier();
		if (*(volatile __u32 *)&stack->switches == switches)
			return took > look_limit_ns;
		/* The task was preempted during the reading, which therefore mixes values from before and after. */
	}
	return 1;
}

/* Charge the time since the last event to the innermost copy, if that is timed. A program calls this first. */
static __always_inline void charge(struct call_stack *stack)
{
	struct call_frame *frame = stack->timed ? top_frame(stack) : NULL;
	struct reading now = {};

	if (!frame || !frame->timed)
		return;
	frame->stopped |= read_task_clock(stack, &now, 0);
	add_between(&frame->spent, &stack->since, &now);
}

/* Charge the time from now on to the innermost copy. A program calls this last. */
static __always_inline void resume_charging(struct call_stack *stack)
{
	struct call_frame *frame = stack->timed ? top_frame(stack) : NULL;

	if (frame && frame->timed)
		frame->stopped |= read_task_clock(stack, &stack->since, 1);
}

/*
 * Push a frame, which counts in `softirqs` and `timed` while it is on the stack; a frame that does not fit is not
 * counted.
 */
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
	frame->timed = category < CATEGORY_CNT && is_next_copy_timed(stack);
	stack->timed += frame->timed;
	stack->softirqs += row == ROW_SOFTIRQ;
	copy_reading(&frame->spent, &none);
}

/* Remove the innermost frame. */
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
 * Drop the frames above the last frame of this row, because their exits did not fire (a kretprobe without a free
 * instance, a skipped program). Return false if there is no such frame above the current softirq: the function was
 * entered before the hooks were attached.
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
				/* A part of its time was charged to another frame, so its own sum is unusable. */
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

/* End the copy that a bracket announced, at the next event. If that event takes references, the copy did not happen. */
static __always_inline void end_bracket(struct call_stack *stack, int copied)
{
	struct call_frame *frame = top_frame(stack);

	if (!frame || frame->row != ROW_BRACKET)
		return;
	if (copied)
		count_copy(stack, frame, frame->bytes);
	pop(stack);
}

/*
 * Requirement for the stack: none, or a call of a KIND_ROOT function that has not returned. WITHIN_OTHER_TASK: a
 * softirq on top of a task that is not a target, and for which no stack is created, because short threads of other
 * programs would fill the table.
 */
enum within { WITHIN_NOTHING, WITHIN_OTHER_TASK, WITHIN_ROOT };

/* Return the task's stack. Create it for WITHIN_NOTHING; otherwise return NULL if there is none. */
static __always_inline struct call_stack *stack_of(__u32 task, enum within within)
{
	struct call_stack *stack = find_stack(task);

	if (!stack && within == WITHIN_NOTHING)
		stack = make_stack(task);
	return stack;
}

/*
 * Return the softirq's own stack: the softirq interrupted a program that works on the task's stack, or the task has
 * none. Return NULL in the same cases as begin().
 */
static __noinline struct call_stack *begin_softirq_stack(enum within within)
{
	struct call_stack *stack = stack_of(SOFTIRQ_STACK | bpf_get_smp_processor_id(),
					    within == WITHIN_OTHER_TASK ? WITHIN_NOTHING : within);

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
		/* The clock of the interrupted task stands still until this softirq ends (rest_below()). */
		read_now(&stack->off_cpu_since, false);
	}
	return stack;
}

/*
 * Return the stack of the current task, or the stack of the softirq that interrupted a program working on the task's
 * stack. NULL: no call of a KIND_ROOT function is open, the table is full, or the stack is busy.
 */
static __always_inline struct call_stack *find_open(enum within within)
{
	struct call_stack *stack = stack_of(task_key(bpf_get_current_pid_tgid()), within);

	if (!stack && within == WITHIN_NOTHING)
		return NULL;
	if (!stack || stack->busy)
		return begin_softirq_stack(within);
	if (within == WITHIN_ROOT && !stack->depth)
		return NULL;
	stack->busy = 1;
	/* From here on the hook of sched_switch follows the task's clock. This must precede the first reading. */
	barrier();
	if (!stack->depth)
		stack->side = current_side();
	return stack;
}

/* Like find_open(), but return NULL while function hooks do not count. */
static __always_inline struct call_stack *begin(enum within within)
{
	return functions_on ? find_open(within) : NULL;
}

/* Release the stack at the end of a program. */
static __always_inline void finish(struct call_stack *stack)
{
	barrier();
	stack->busy = 0;
}

#endif

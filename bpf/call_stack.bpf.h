/* SPDX-License-Identifier: GPL-2.0 */
/* call_stack.bpf.h - the call stack of a task: who is innermost, and whom the time since the last event belongs to. */
#ifndef COPYSCOPE_CALL_STACK_BPF_H
#define COPYSCOPE_CALL_STACK_BPF_H

#include "bounded.bpf.h"
#include "context.bpf.h"
#include "gate.bpf.h"
#include "hooks.h"
#include "flush.bpf.h"

/* A task that is preempted each time it looks at the clock is not to be expected. */
#define READ_ATTEMPTS 4

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

/* The time since the last event, and the counters, belong to the innermost function. */
static __always_inline void charge(struct call_stack *stack, const struct reading *now)
{
	static const struct reading none = {};
	__u32 context = !!stack->softirqs, category = BOUNDED(innermost(stack), CATEGORY_SLOTS);
	struct reading *spent = &stack->spent[context][category];

	if (!stack->timed || !stack->depth)
		return;
	if (!(stack->charged & CHARGED(context, category)))
		copy_reading(spent, &none);
	stack->charged |= CHARGED(context, category);
	stack->charged_ns += now->ns - stack->since.ns;
	add_between(spent, &stack->since, now);
	copy_reading(&stack->since, now);
}

/* Softirq work on top of the task: what runs in it is in the other context. */
static __always_inline bool is_softirq(__u32 row)
{
#define FUNCTION(id, symbols, category, kind, bytes, need, arguments) \
	if (KIND_##kind == KIND_WORK && row == ROW_##id) \
		return true;
	FUNCTIONS(FUNCTION)
#undef FUNCTION
	return row == ROW_SOFTIRQ;
}

/* A frame that is pushed counts in `softirqs`, if it is of one, for as long as it is on the stack: not one that did not fit. */
static __always_inline void push(struct call_stack *stack, __u32 category, __u64 bytes, __u32 row,
				 const struct reading *now)
{
	struct call_frame *frame;
	__u32 depth = stack->depth;

	if (depth >= CALL_STACK_DEPTH) {
		count_loss(LOSS_CALL_STACK_OVERFLOW);
		return;
	}
	if (depth == stack->in_syscall && stack->timed) {
		if (depth)
			add_between(&stack->outside, &stack->root, now);
		copy_reading(&stack->root, now);
		copy_reading(&stack->since, now);
		/* Of a root whose exit did not fire, nothing is left. */
		stack->charged &= depth ? CHARGED(0, CATEGORY_SYSCALL) : 0;
		stack->charged_ns = 0;
	}
	stack->depth = depth + 1;
	frame = top_frame(stack);
	if (!frame)
		return;
	frame->category = category;
	frame->bytes = bytes;
	frame->row = row;
	if (is_softirq(row))
		stack->softirqs++;
}

/* The innermost frame is of this row. */
static __always_inline void pop(struct call_stack *stack, __u32 row, const struct reading *now)
{
	if (is_softirq(row))
		stack->softirqs--;
	stack->depth--;
	if (stack->depth != stack->in_syscall)
		return;
	end_root(stack, now);
	if (stack->timed)
		copy_reading(&stack->root, now);
}

/*
 * Drops what lies above the last frame of the row: its exit did not fire (a kretprobe without a free instance, a program
 * that was skipped). False when there is no such frame, at least not above the softirq that we are in: it was entered
 * before we were attached.
 */
static __always_inline bool unwind(struct call_stack *stack, __u32 row)
{
	__u32 depth = stack->depth, softirqs = stack->softirqs;

	for (int i = 0; i < CALL_STACK_DEPTH; i++) {
		__u32 index = depth - 1 - i;
		struct call_frame *frame;

		if (index >= CALL_STACK_DEPTH)
			break;
		frame = &stack->frames[BOUNDED(index, CALL_STACK_DEPTH)];
		if (frame->row == row) {
			if (i) {
				stack->depth = depth - i;
				stack->softirqs = softirqs;
				count_loss(LOSS_CALL_STACK_BROKEN);
			}
			return true;
		}
		if (frame->row == ROW_SOFTIRQ)
			break;
		softirqs -= is_softirq(frame->row);
	}
	return false;
}

/* The copy that a bracket announced ends with the next event, and did not happen if that event takes references. */
static __always_inline void end_bracket(struct call_stack *stack, const struct reading *now, int copied)
{
	struct call_frame *frame = top_frame(stack);

	if (!frame || frame->row != ROW_BRACKET)
		return;
	if (copied) {
		charge(stack, now);
		count_call(stack, CATEGORY_COPY_IN, frame->bytes);
	}
	stack->depth--;
	if (!copied)
		charge(stack, now);
}

/*
 * The task's own clock and counters: those of its CPU, less what they did while it was off the CPU. They stand still while
 * it is, wherever in a program it was preempted. Of a call that is not timed, neither is read.
 */
static __noinline int read_if_timed(struct call_stack *stack, struct reading *now)
{
	if (!stack->timed)
		return 0;
	for (int i = 0; i < READ_ATTEMPTS; i++) {
		__u32 switches = *(volatile __u32 *)&stack->switches;

		barrier();
		read_now(now);
		subtract_reading(now, &stack->off_cpu);
		barrier();
		if (*(volatile __u32 *)&stack->switches == switches)
			return 0;
		/* It was preempted in between: what was read is of before and after. */
	}
	count_loss(LOSS_READING_TORN);
	return 0;
}

/* What must be open already; of the call around the roots alone, nothing is followed but itself. */
enum within { WITHIN_NOTHING, WITHIN_CALL, WITHIN_ROOT };

/* NULL: there is none, and none is wanted. */
static __always_inline struct call_stack *stack_of(__u32 task, enum within within)
{
	struct call_stack *stack = find_stack(task);

	if (!stack && within == WITHIN_NOTHING)
		stack = make_stack(task);
	return stack;
}

static __always_inline bool is_within(const struct call_stack *stack, enum within within)
{
	return within == WITHIN_NOTHING || stack->depth > (within == WITHIN_ROOT ? stack->in_syscall : 0);
}

/* A program works on the stack below and was interrupted; what goes on here is timed if that is. NULL as for begin(). */
static __noinline struct call_stack *begin_softirq_stack(struct call_stack *below, enum within within)
{
	struct call_stack *softirq_stack = stack_of(SOFTIRQ_STACK | bpf_get_smp_processor_id(), within);

	if (!softirq_stack || !is_within(softirq_stack, within))
		return NULL;
	if (softirq_stack->busy) {
		count_loss(LOSS_CALL_STACK_BROKEN);
		return NULL;
	}
	softirq_stack->busy = 1;
	barrier();
	if (!softirq_stack->depth) {
		softirq_stack->side = current_side();
		if (below->depth)
			softirq_stack->timed = below->timed;
		else
			choose(softirq_stack);
	}
	return softirq_stack;
}

/*
 * The stack of the current task, or of the softirq that interrupted a program which works on that.
 * NULL: not followed (outside of every root, or hooks are still coming or going), or busy.
 */
static __always_inline struct call_stack *begin(enum within within)
{
	struct call_stack *stack;

	if (!functions_on)
		return NULL;
	stack = stack_of(task_key(bpf_get_current_pid_tgid()), within);
	if (!stack)
		return NULL;
	if (stack->busy)
		return begin_softirq_stack(stack, within);
	if (!is_within(stack, within))
		return NULL;
	stack->busy = 1;
	/* From here on sched_switch minds the task's clock: before it is read. */
	barrier();
	if (!stack->depth) {
		stack->side = current_side();
		choose(stack);
	}
	barrier();
	return stack;
}

/* The end of a program's work. */
static __always_inline void finish(struct call_stack *stack)
{
	barrier();
	stack->busy = 0;
}

/* The call comes from user mode: what is still open is of one whose exit did not fire. */
static __always_inline void begin_syscall(struct call_stack *stack)
{
	static const struct reading none = {};

	if (stack->depth)
		count_loss(LOSS_CALL_STACK_BROKEN);
	stack->depth = 0;
	stack->in_syscall = 0;
	stack->softirqs = 0;
	stack->has_root = 0;
	copy_reading(&stack->outside, &none);
}

/*
 * The end of the call around the roots: the rest of its time, if one was of TCP; else there was nothing to follow. The clock is
 * read as late as can be: what comes after it is in no row.
 */
static __noinline int end_syscall(struct call_stack *stack)
{
	__u32 side = stack->side;
	struct root_cell *root = bpf_map_lookup_elem(&root_cells, &side);
	struct function_cell *cell = cell_of(stack, CATEGORY_SYSCALL);
	const struct reading *spent = &stack->spent[0][CATEGORY_SYSCALL];
	struct reading now = {};

	if (root && cell && stack->has_root) {
		cell->calls++;
		read_if_timed(stack, &now);
		charge(stack, &now);
		if (stack->timed) {
			add_between(&stack->outside, &stack->root, &now);
			if (stack->outside.ns == spent->ns) {
				cell->timed_calls++;
				add_reading(&root->inclusive, &stack->outside);
				add_spent(cell, spent);
			} else {
				count_loss(LOSS_SYSCALL_UNBALANCED);
			}
		}
	}
	stack->depth = 0;
	stack->in_syscall = 0;
	return 0;
}

#endif

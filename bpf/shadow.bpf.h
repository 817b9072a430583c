/* SPDX-License-Identifier: GPL-2.0 */
/* shadow.bpf.h - the shadow stack of a task: who is innermost, and whom the time since the last event belongs to. */
#ifndef COPYSCOPE_SHADOW_BPF_H
#define COPYSCOPE_SHADOW_BPF_H

#include "bounded.bpf.h"
#include "context.bpf.h"
#include "gate.bpf.h"
#include "hooks.h"
#include "settle.bpf.h"

/* A task that is preempted each time it looks at the clock is not to be expected. */
#define READ_ATTEMPTS 4

/* NULL when the stack is empty. */
static __always_inline struct shadow_frame *top_frame(struct shadow *shadow)
{
	__u32 top = shadow->depth - 1;

	if (top >= SHADOW_DEPTH)
		return NULL;
	return &shadow->frames[BOUNDED(top, SHADOW_DEPTH)];
}

static __always_inline __u32 innermost(struct shadow *shadow)
{
	struct shadow_frame *frame = top_frame(shadow);

	return frame ? frame->category : CATEGORY_NONE;
}

/* The time since the last event, and the counters, belong to the innermost function. */
static __always_inline void charge(struct shadow *shadow, const struct reading *now)
{
	static const struct reading none = {};
	__u32 context = !!shadow->softirqs, category = BOUNDED(innermost(shadow), CATEGORY_SLOTS);
	struct reading *spent = &shadow->spent[context][category];

	if (!shadow->timed || !shadow->depth)
		return;
	if (!(shadow->charged & CHARGED(context, category)))
		copy_reading(spent, &none);
	shadow->charged |= CHARGED(context, category);
	shadow->charged_ns += now->ns - shadow->since.ns;
	add_between(spent, &shadow->since, now);
	copy_reading(&shadow->since, now);
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
static __always_inline void push(struct shadow *shadow, __u32 category, __u64 bytes, __u32 row,
				 const struct reading *now)
{
	struct shadow_frame *frame;
	__u32 depth = shadow->depth;

	if (depth >= SHADOW_DEPTH) {
		count_loss(LOSS_SHADOW_OVERFLOW);
		return;
	}
	if (depth == shadow->around && shadow->timed) {
		if (depth)
			add_between(&shadow->outside, &shadow->root, now);
		copy_reading(&shadow->root, now);
		copy_reading(&shadow->since, now);
		/* Of a root whose exit did not fire, nothing is left. */
		shadow->charged &= depth ? CHARGED(0, CATEGORY_SYSCALL) : 0;
		shadow->charged_ns = 0;
	}
	shadow->depth = depth + 1;
	frame = top_frame(shadow);
	if (!frame)
		return;
	frame->category = category;
	frame->bytes = bytes;
	frame->row = row;
	if (is_softirq(row))
		shadow->softirqs++;
}

/* The innermost frame is of this row. */
static __always_inline void pop(struct shadow *shadow, __u32 row, const struct reading *now)
{
	if (is_softirq(row))
		shadow->softirqs--;
	shadow->depth--;
	if (shadow->depth != shadow->around)
		return;
	end_root(shadow, now);
	if (shadow->timed)
		copy_reading(&shadow->root, now);
}

/*
 * Drops what lies above the last frame of the row: its exit did not fire (a kretprobe without a free instance, a program
 * that was skipped). False when there is no such frame, at least not above the softirq that we are in: it was entered
 * before we were attached.
 */
static __always_inline bool unwind(struct shadow *shadow, __u32 row)
{
	__u32 depth = shadow->depth, softirqs = shadow->softirqs;

	for (int i = 0; i < SHADOW_DEPTH; i++) {
		__u32 index = depth - 1 - i;
		struct shadow_frame *frame;

		if (index >= SHADOW_DEPTH)
			break;
		frame = &shadow->frames[BOUNDED(index, SHADOW_DEPTH)];
		if (frame->row == row) {
			if (i) {
				shadow->depth = depth - i;
				shadow->softirqs = softirqs;
				count_loss(LOSS_SHADOW_BROKEN);
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
static __always_inline void end_bracket(struct shadow *shadow, const struct reading *now, int copied)
{
	struct shadow_frame *frame = top_frame(shadow);

	if (!frame || frame->row != ROW_BRACKET)
		return;
	if (copied) {
		charge(shadow, now);
		count_call(shadow, CATEGORY_COPY_IN, frame->bytes);
	}
	shadow->depth--;
	if (!copied)
		charge(shadow, now);
}

/*
 * The task's own clock and counters: those of its CPU, less what they did while it was off the CPU. They stand still while
 * it is, wherever in a program it was preempted. Of a call that is not timed, neither is read.
 */
static __noinline int read_if_timed(struct shadow *shadow, struct reading *now)
{
	if (!shadow->timed)
		return 0;
	for (int i = 0; i < READ_ATTEMPTS; i++) {
		__u32 switches = *(volatile __u32 *)&shadow->switches;

		barrier();
		read_now(now);
		subtract_reading(now, &shadow->off_cpu);
		barrier();
		if (*(volatile __u32 *)&shadow->switches == switches)
			return 0;
		/* It was preempted in between: what was read is of before and after. */
	}
	count_loss(LOSS_READING_TORN);
	return 0;
}

/* What must be open already; of the call around the roots alone, nothing is followed but itself. */
enum within { WITHIN_NOTHING, WITHIN_CALL, WITHIN_ROOT };

/* NULL: there is none, and none is wanted. */
static __always_inline struct shadow *shadow_of(__u32 task, enum within within)
{
	struct shadow *shadow = find_shadow(task);

	if (!shadow && within == WITHIN_NOTHING)
		shadow = make_shadow(task);
	return shadow;
}

static __always_inline bool is_within(const struct shadow *shadow, enum within within)
{
	return within == WITHIN_NOTHING || shadow->depth > (within == WITHIN_ROOT ? shadow->around : 0);
}

/* A program works on the shadow below and was interrupted; what goes on here is timed if that is. NULL as for begin(). */
static __noinline struct shadow *begin_overlay(struct shadow *below, enum within within)
{
	struct shadow *overlay = shadow_of(OVERLAY | bpf_get_smp_processor_id(), within);

	if (!overlay || !is_within(overlay, within))
		return NULL;
	if (overlay->busy) {
		count_loss(LOSS_SHADOW_BROKEN);
		return NULL;
	}
	overlay->busy = 1;
	barrier();
	if (!overlay->depth) {
		overlay->side = current_side();
		if (below->depth)
			overlay->timed = below->timed;
		else
			choose(overlay);
	}
	return overlay;
}

/*
 * The shadow of the current task, or of the softirq that interrupted a program which works on that.
 * NULL: not followed (outside of every root, or hooks are still coming or going), or busy.
 */
static __always_inline struct shadow *begin(enum within within)
{
	struct shadow *shadow;

	if (!functions_on)
		return NULL;
	shadow = shadow_of(task_key(bpf_get_current_pid_tgid()), within);
	if (!shadow)
		return NULL;
	if (shadow->busy)
		return begin_overlay(shadow, within);
	if (!is_within(shadow, within))
		return NULL;
	shadow->busy = 1;
	/* From here on sched_switch minds the task's clock: before it is read. */
	barrier();
	if (!shadow->depth) {
		shadow->side = current_side();
		choose(shadow);
	}
	barrier();
	return shadow;
}

/* The end of a program's work. */
static __always_inline void finish(struct shadow *shadow)
{
	barrier();
	shadow->busy = 0;
}

/* The call comes from user mode: what is still open is of one whose exit did not fire. */
static __always_inline void begin_around(struct shadow *shadow)
{
	static const struct reading none = {};

	if (shadow->depth)
		count_loss(LOSS_SHADOW_BROKEN);
	shadow->depth = 0;
	shadow->around = 0;
	shadow->softirqs = 0;
	shadow->has_root = 0;
	copy_reading(&shadow->outside, &none);
}

/*
 * The end of the call around the roots: the rest of its time, if one was of TCP; else there was nothing to follow. The clock is
 * read as late as can be: what comes after it is in no row.
 */
static __noinline int end_around(struct shadow *shadow)
{
	__u32 side = shadow->side;
	struct root_cell *root = bpf_map_lookup_elem(&root_cells, &side);
	struct function_cell *cell = cell_of(shadow, CATEGORY_SYSCALL);
	const struct reading *spent = &shadow->spent[0][CATEGORY_SYSCALL];
	struct reading now = {};

	if (root && cell && shadow->has_root) {
		cell->calls++;
		read_if_timed(shadow, &now);
		charge(shadow, &now);
		if (shadow->timed) {
			add_between(&shadow->outside, &shadow->root, &now);
			if (shadow->outside.ns == spent->ns) {
				cell->timed_calls++;
				add_reading(&root->inclusive, &shadow->outside);
				add_spent(cell, spent);
			} else {
				count_loss(LOSS_AROUND_UNBALANCED);
			}
		}
	}
	shadow->depth = 0;
	shadow->around = 0;
	return 0;
}

#endif

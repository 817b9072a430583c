/* SPDX-License-Identifier: GPL-2.0 */
/* shadow.bpf.h - the shadow stack of a task: who is innermost, and whom the time since the last event belongs to. */
#ifndef COPYSCOPE_SHADOW_BPF_H
#define COPYSCOPE_SHADOW_BPF_H

#include "hooks.h"
#include "target.bpf.h"

/* Each CPU has an idle task of its own, and all have the tid 0. */
#define IDLE_TASK 0x80000000u

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SHADOWS_MAX);
	__type(key, __u32);
	__type(value, struct shadow);
} shadows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FUNCTION_CELLS);
	__type(key, __u32);
	__type(value, struct function_cell);
} function_cells SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SIDE_OTHER + 1);
	__type(key, __u32);
	__type(value, struct root_cell);
} root_cells SEC(".maps");

static const struct shadow new_shadow = {};

static __always_inline __u32 shadow_key(__u32 tid)
{
	return tid ? tid : IDLE_TASK | bpf_get_smp_processor_id();
}

static __always_inline struct function_cell *cell_of(const struct shadow *shadow, __u32 category)
{
	__u32 index = (current_side() * CONTEXTS + !!shadow->softirqs) * CATEGORY_CNT + category;

	return bpf_map_lookup_elem(&function_cells, &index);
}

/* NULL when the stack is empty. */
static __always_inline struct shadow_frame *top_frame(struct shadow *shadow)
{
	__u32 top = shadow->depth - 1;

	if (top >= SHADOW_DEPTH)
		return NULL;
	/* The compiler knows the bound; the verifier must see it in the very register that is used. */
	asm volatile("" : "+r"(top));
	return &shadow->frames[top & (SHADOW_DEPTH - 1)];
}

static __always_inline __u32 innermost(struct shadow *shadow)
{
	struct shadow_frame *frame = top_frame(shadow);

	return frame ? frame->category : CATEGORY_NONE;
}

/* The time since the last event belongs to the innermost function. */
static __always_inline void charge(struct shadow *shadow, __u64 now)
{
	struct function_cell *cell;

	if (!shadow->depth || !shadow->since_ns)
		return;
	cell = cell_of(shadow, innermost(shadow));
	if (cell)
		cell->self_ns += now - shadow->since_ns;
	shadow->since_ns = now;
}

static __always_inline void push(struct shadow *shadow, __u32 category, __u64 bytes, __u32 row, __u64 now)
{
	struct shadow_frame *frame;
	__u32 depth = shadow->depth;

	if (depth >= SHADOW_DEPTH) {
		count_loss(LOSS_SHADOW_OVERFLOW);
		return;
	}
	if (!depth) {
		shadow->root_ns = now;
		shadow->off_cpu_ns = 0;
		shadow->off_cpu_before_ns = 0;
		shadow->since_ns = now;
	}
	shadow->depth = depth + 1;
	frame = top_frame(shadow);
	if (!frame)
		return;
	frame->category = category;
	frame->bytes = bytes;
	frame->row = row;
}

static __always_inline void pop(struct shadow *shadow, __u64 now)
{
	__u32 side = current_side();
	struct root_cell *root;

	shadow->depth--;
	if (shadow->depth)
		return;
	root = bpf_map_lookup_elem(&root_cells, &side);
	if (root) {
		root->calls++;
		root->inclusive_ns += now - shadow->root_ns - shadow->off_cpu_before_ns;
	}
}

static __always_inline void count_call(const struct shadow *shadow, __u32 category, __s64 bytes)
{
	struct function_cell *cell = cell_of(shadow, category);

	if (!cell)
		return;
	cell->calls++;
	if (bytes > 0)
		cell->bytes += bytes;
}

/*
 * Drops what lies above the last frame of the row: its exit did not fire (a kretprobe without a free instance, a program
 * that was skipped). False when there is no such frame, at least not above the softirq that we are in: it was entered
 * before we were attached.
 */
static __always_inline bool unwind(struct shadow *shadow, __u32 row)
{
	__u32 depth = shadow->depth;

	for (int i = 0; i < SHADOW_DEPTH; i++) {
		__u32 index = depth - 1 - i;
		struct shadow_frame *frame;

		if (index >= SHADOW_DEPTH)
			break;
		asm volatile("" : "+r"(index));
		frame = &shadow->frames[index & (SHADOW_DEPTH - 1)];
		if (frame->row == row) {
			if (i) {
				shadow->depth = depth - i;
				count_loss(LOSS_SHADOW_BROKEN);
			}
			return true;
		}
		if (frame->row == ROW_SOFTIRQ)
			break;
	}
	return false;
}

/* The copy that a bracket announced ends with the next event, and did not happen if that event takes references. */
static __always_inline void end_bracket(struct shadow *shadow, __u64 now, int copied)
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
 * The shadow of the current task; a softirq may interrupt a program that works on it, and then leaves it alone.
 * NULL: not followed (outside of every root), or busy.
 */
static __always_inline struct shadow *begin(int root)
{
	__u32 key = shadow_key(bpf_get_current_pid_tgid());
	struct shadow *shadow = bpf_map_lookup_elem(&shadows, &key);

	if (!shadow) {
		if (!root)
			return NULL;
		if (bpf_map_update_elem(&shadows, &key, &new_shadow, BPF_NOEXIST)) {
			count_loss(LOSS_SHADOW_MAP_FULL);
			return NULL;
		}
		shadow = bpf_map_lookup_elem(&shadows, &key);
		if (!shadow)
			return NULL;
	}
	if (!shadow->depth && !root)
		return NULL;
	if (shadow->busy) {
		count_loss(LOSS_SHADOW_BROKEN);
		return NULL;
	}
	shadow->off_cpu_before_ns = shadow->off_cpu_ns;
	shadow->busy = 1;
	return shadow;
}

/*
 * The end of a program's work. Programs on functions may be preempted on some kernels: then the clock starts anew here,
 * and the few microseconds between are nobody's.
 */
static __always_inline void finish(struct shadow *shadow)
{
	if (shadow->off_cpu_ns != shadow->off_cpu_before_ns)
		shadow->since_ns = bpf_ktime_get_ns();
	shadow->busy = 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/* shadows.bpf.h - where the shadow stack of each task is kept. */
#ifndef COPYSCOPE_SHADOWS_BPF_H
#define COPYSCOPE_SHADOWS_BPF_H

#include "context.bpf.h"
#include "counters.bpf.h"

/*
 * By task, with linear probing. Every event needs it, and of an array the verifier makes the look-up a few instructions, where a
 * hash costs a call, a hash of its own and a bucket. Nothing is taken out; the collector empties it before the hooks come.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SHADOWS_MAX);
	__type(key, __u32);
	__type(value, struct shadow);
} shadows SEC(".maps");

/*
 * A softirq that interrupts a program at its work leaves the task's shadow alone and has one of its own, of the CPU: a task does not
 * come back before it is over. Tids are below 2^22.
 */
#define OVERLAY 0x40000000u

/* How far from its place a shadow may be. */
#define SHADOW_STEPS 16

/* NULL where there is no such shadow. */
static __noinline struct shadow *find_shadow(__u32 task)
{
	for (__u32 step = 0; step < SHADOW_STEPS; step++) {
		__u32 index = SHADOW_PLACE(task, step);
		struct shadow *shadow = bpf_map_lookup_elem(&shadows, &index);

		if (!shadow || !shadow->claims)
			return NULL;
		if (shadow->task == task)
			return shadow;
	}
	return NULL;
}

/*
 * Who claims a free place alone has it; of two at once both may go on to the next. (The old value from the addition itself
 * would need BPF_FETCH, which came with 5.12.)
 */
static __noinline struct shadow *make_shadow(__u32 task)
{
	for (__u32 step = 0; step < SHADOW_STEPS; step++) {
		__u32 index = SHADOW_PLACE(task, step);
		struct shadow *shadow = bpf_map_lookup_elem(&shadows, &index);

		if (!shadow)
			return NULL;
		if (shadow->claims)
			continue;
		add_atomic(&shadow->claims, 1);
		if (*(volatile __u32 *)&shadow->claims != 1)
			continue;
		shadow->task = task;
		return shadow;
	}
	count_loss(LOSS_SHADOW_MAP_FULL);
	return NULL;
}

/* The task's clock stood still while the softirq of this overlay ran, as it does while the task is off the CPU. */
static __always_inline void rest_below(const struct shadow *overlay, const struct reading *now)
{
	struct shadow *below = find_shadow(task_key(bpf_get_current_pid_tgid()));

	if (!below)
		return;
	add_between(&below->off_cpu, &overlay->root, now);
	below->switches++;
}

#endif

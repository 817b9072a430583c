/* SPDX-License-Identifier: GPL-2.0 */
/* call_stacks.bpf.h - where the call stack of each task is kept. */
#ifndef COPYSCOPE_CALL_STACKS_BPF_H
#define COPYSCOPE_CALL_STACKS_BPF_H

#include "context.bpf.h"
#include "counters.bpf.h"

/*
 * By task, with linear probing. Every event needs it, and of an array the verifier makes the look-up a few instructions, where a
 * hash costs a call, a hash of its own and a bucket. Nothing is taken out; the collector empties it before the hooks come.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CALL_STACKS_MAX);
	__type(key, __u32);
	__type(value, struct call_stack);
} call_stacks SEC(".maps");

/*
 * A softirq that interrupts a program at its work leaves the task's stack alone and has one of its own, of the CPU: a task does not
 * come back before it is over. Tids are below 2^22.
 */
#define SOFTIRQ_STACK 0x40000000u

/* How far from its place a stack may be. */
#define CALL_STACK_STEPS 16

/* NULL where there is no such stack. */
static __noinline struct call_stack *find_stack(__u32 task)
{
	for (__u32 step = 0; step < CALL_STACK_STEPS; step++) {
		__u32 index = CALL_STACK_PLACE(task, step);
		struct call_stack *stack = bpf_map_lookup_elem(&call_stacks, &index);

		if (!stack || !stack->claims)
			return NULL;
		if (stack->task == task)
			return stack;
	}
	return NULL;
}

/*
 * A place is owned if claims is 1 after our increment; of two tasks at once both may go on to the next. (The old value
 * from the addition itself would need BPF_FETCH, which came with 5.12.)
 */
static __noinline struct call_stack *make_stack(__u32 task)
{
	for (__u32 step = 0; step < CALL_STACK_STEPS; step++) {
		__u32 index = CALL_STACK_PLACE(task, step);
		struct call_stack *stack = bpf_map_lookup_elem(&call_stacks, &index);

		if (!stack)
			return NULL;
		if (stack->claims)
			continue;
		add_atomic(&stack->claims, 1);
		if (*(volatile __u32 *)&stack->claims != 1)
			continue;
		stack->task = task;
		return stack;
	}
	count_loss(LOSS_CALL_STACK_MAP_FULL);
	return NULL;
}

/* The task's clock stood still while the softirq of this stack ran, as it does while the task is off the CPU. */
static __always_inline void rest_below(const struct call_stack *softirq_stack)
{
	struct call_stack *below = find_stack(task_key(bpf_get_current_pid_tgid()));
	struct reading now = {};

	if (!below)
		return;
	read_now(&now, true);
	add_between(&below->off_cpu, &softirq_stack->off_cpu_since, &now);
	below->switches++;
}

#endif

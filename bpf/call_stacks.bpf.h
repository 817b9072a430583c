/* SPDX-License-Identifier: GPL-2.0-only */
/* call_stacks.bpf.h - table of the call stacks of all tasks. */
#ifndef COPYSCOPE_CALL_STACKS_BPF_H
#define COPYSCOPE_CALL_STACKS_BPF_H

#include "context.bpf.h"
#include "counters.bpf.h"

/*
 * Keyed by task, with linear probing. Every event looks up a stack. In an array the verifier turns that into a few
 * instructions, while a BPF hash map costs a call, a hash and a bucket. Entries are never removed; the collector
 * clears the table before the hooks count.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CALL_STACKS_MAX);
	__type(key, __u32);
	__type(value, struct call_stack);
} call_stacks SEC(".maps");

/*
 * A softirq that interrupts a program leaves the task's stack alone and uses a stack of its own, keyed by CPU. The task
 * cannot continue before that softirq ends. Thread ids are below 2^22.
 */
#define SOFTIRQ_STACK 0x40000000u

/* Maximum distance of a stack from its first choice. */
#define CALL_STACK_STEPS 16

/*
 * The two functions below are global, so that the verifier checks each of them on its own. As static functions, the
 * verifier of 5.10 (5.10.223) could track their argument or loop counter back into a state of the caller, where it
 * dereferences NULL (__mark_chain_precision()): the kernel oopses. Global functions of 5.10 return numbers only, so these
 * functions return the index of a stack, or CALL_STACKS_MAX for none.
 */
__noinline int index_of_stack(__u32 task)
{
	for (__u32 step = 0; step < CALL_STACK_STEPS; step++) {
		__u32 index = CALL_STACK_PLACE(task, step);
		struct call_stack *stack = bpf_map_lookup_elem(&call_stacks, &index);

		if (!stack || !stack->claims)
			return CALL_STACKS_MAX;
		if (stack->task == task)
			return index;
	}
	return CALL_STACKS_MAX;
}

/*
 * Claim an entry for a task. The entry is ours if `claims` is 1 after our increment. If two tasks claim it at once,
 * both may move on. (The old value of the addition would need BPF_FETCH, new in 5.12.)
 */
__noinline int claim_stack(__u32 task)
{
	for (__u32 step = 0; step < CALL_STACK_STEPS; step++) {
		__u32 index = CALL_STACK_PLACE(task, step);
		struct call_stack *stack = bpf_map_lookup_elem(&call_stacks, &index);

		if (!stack)
			return CALL_STACKS_MAX;
		if (stack->claims)
			continue;
		add_atomic(&stack->claims, 1);
		if (*(volatile __u32 *)&stack->claims != 1)
			continue;
		stack->task = task;
		return index;
	}
	count_loss(LOSS_CALL_STACK_MAP_FULL);
	return CALL_STACKS_MAX;
}

/* Return the stack of a task, or NULL if there is none. */
static __always_inline struct call_stack *find_stack(__u32 task)
{
	__u32 index = index_of_stack(task);

	return bpf_map_lookup_elem(&call_stacks, &index);
}

static __always_inline struct call_stack *make_stack(__u32 task)
{
	__u32 index = claim_stack(task);

	return bpf_map_lookup_elem(&call_stacks, &index);
}

/* Stop the interrupted task's clock for the duration of this softirq, as if the task had been off the CPU. */
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

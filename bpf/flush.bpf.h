/* SPDX-License-Identifier: GPL-2.0 */
/* flush.bpf.h - what a root has spent: into the cells, when it ends. */
#ifndef COPYSCOPE_FLUSH_BPF_H
#define COPYSCOPE_FLUSH_BPF_H

#include "counters.bpf.h"
#include "call_stacks.bpf.h"
#include "map.bpf.h"

MAP(PERCPU_ARRAY, function_cells, __u32, struct function_cell, FUNCTION_CELLS);
MAP(PERCPU_ARRAY, root_cells, __u32, struct root_cell, SIDE_OTHER + 1);

#define CHARGED(context, category) (1u << ((context) * CATEGORY_SLOTS + (category)))

static __always_inline struct function_cell *cell_of(const struct call_stack *stack, __u32 category)
{
	__u32 index = (stack->side * CONTEXTS + !!stack->softirqs) * CATEGORY_CNT + category;

	return bpf_map_lookup_elem(&function_cells, &index);
}

static __always_inline void count_call(const struct call_stack *stack, __u32 category, __s64 bytes)
{
	struct function_cell *cell = cell_of(stack, category);

	if (!cell)
		return;
	cell->calls++;
	cell->timed_calls += stack->timed;
	if (bytes > 0)
		cell->bytes += bytes;
}

static __always_inline void add_spent(struct function_cell *cell, const struct reading *spent)
{
	__u64 rounded = (spent->ns + (1 << (SQUARE_SHIFT - 1))) >> SQUARE_SHIFT;

	cell->squares += rounded * rounded;
	add_reading(&cell->self, spent);
}

/* What the call spent in one context and category goes to its cell. */
static __always_inline void flush(struct call_stack *stack, __u32 side, __u32 context, __u32 category)
{
	struct reading *spent = &stack->spent[context][category];
	__u32 index = (side * CONTEXTS + context) * CATEGORY_CNT + category;
	struct function_cell *cell;

	if (!(stack->charged & CHARGED(context, category)))
		return;
	cell = bpf_map_lookup_elem(&function_cells, &index);
	if (cell)
		add_spent(cell, spent);
}

/*
 * The end of a root; once per call and not inlined: it is the same in all programs, and long. What was charged since its
 * beginning must be what it took: where it is not, its time is left out, and that is counted.
 */
static __noinline int end_root(struct call_stack *stack, const struct reading *now)
{
	__u32 side = stack->side;
	struct root_cell *root = bpf_map_lookup_elem(&root_cells, &side);

	if (!root)
		return 0;
	root->calls++;
	if (!stack->timed)
		return 0;
	if (stack->task & SOFTIRQ_STACK)
		rest_below(stack, now);
	if (stack->charged_ns != now->ns - stack->root.ns) {
		count_loss(LOSS_ROOT_UNBALANCED);
		return 0;
	}
	root->timed_calls++;
	add_between(&root->inclusive, &stack->root, now);
	for (__u32 context = 0; context < CONTEXTS; context++)
		for (__u32 category = 0; category < CATEGORY_SYSCALL; category++)
			flush(stack, side, context, category);
	return 0;
}

#endif

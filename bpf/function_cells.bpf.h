/* SPDX-License-Identifier: GPL-2.0-only */
/* function_cells.bpf.h - sums of copies: one cell per side, context and category. */
#ifndef COPYSCOPE_FUNCTION_CELLS_BPF_H
#define COPYSCOPE_FUNCTION_CELLS_BPF_H

#include "counters.bpf.h"
#include "map.bpf.h"

MAP(PERCPU_ARRAY, function_cells, __u32, struct function_cell, FUNCTION_CELLS);

/* Count a copy that has ended. Add its time if it was timed and no reading was disturbed. */
static __noinline int count_copy(const struct call_stack *stack, const struct call_frame *frame, __s64 bytes)
{
	__u32 index = (stack->side * CONTEXTS + !!stack->softirqs) * CATEGORY_CNT + frame->category;
	struct function_cell *cell = bpf_map_lookup_elem(&function_cells, &index);
	__u64 rounded = (frame->spent.ns + (1 << (SQUARE_SHIFT - 1))) >> SQUARE_SHIFT;

	if (!cell)
		return 0;
	cell->calls++;
	if (bytes > 0)
		cell->bytes += bytes;
	if (frame->stopped)
		count_loss(LOSS_LOOK_STOPPED);
	if (!frame->timed || frame->stopped)
		return 0;
	cell->timed_calls++;
	cell->squares += rounded * rounded;
	add_reading(&cell->self, &frame->spent);
	return 0;
}

#endif

// SPDX-License-Identifier: GPL-2.0
#include "shape.h"

#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "report/maps.h"
#include "report/names.h"

void shape__configure(struct copyscope *skel)
{
	skel->rodata->page_bytes = sysconf(_SC_PAGESIZE);
}

/* [[low, count]] of the numbers that happened: each up to 15, then powers of two. */
static json_t *counts_json(const __u64 *slots)
{
	json_t *array = json_array();

	for (int slot = 0; slot < COUNT_SLOTS; slot++) {
		json_int_t low = slot < COUNTS_EXACT ? slot : (json_int_t)COUNTS_EXACT << (slot - COUNTS_EXACT);

		if (slots[slot])
			json_array_append_new(array, json_pack("[I, I]", low, (json_int_t)slots[slot]));
	}
	return array;
}

static json_t *shape_json(__u32 index, const struct copyscope *skel)
{
	struct shape_cell sum = {};

	if (!maps__sum(skel->maps.shape_cells, index, &sum, sizeof(sum)) || (!sum.messages && !sum.sends))
		return NULL;
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}",
			 "protocol", protocol_names[index / CALL_CNT], "syscall", call_names[index % CALL_CNT],
			 "messages", (json_int_t)sum.messages, "unreadable", (json_int_t)sum.unreadable,
			 "repeated", (json_int_t)sum.repeated, "buffers", (json_int_t)sum.buffers,
			 "looked", (json_int_t)sum.looked, "page_aligned", (json_int_t)sum.page_aligned,
			 "line_aligned", (json_int_t)sum.line_aligned, "sends", (json_int_t)sum.sends,
			 "rounds", (json_int_t)sum.rounds, "buffers_per_message", counts_json(sum.buffers_per_message),
			 "rounds_per_send", counts_json(sum.rounds_per_send));
}

json_t *shape__json(const struct copyscope *skel)
{
	json_t *array = json_array();

	for (__u32 index = 0; index < SHAPE_CELLS; index++) {
		json_t *row = shape_json(index, skel);

		if (row)
			json_array_append_new(array, row);
	}
	return array;
}

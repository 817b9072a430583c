// SPDX-License-Identifier: GPL-2.0
#include "function_cells.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "abi.h"
#include "counters.h"
#include "report/maps.h"
#include "report/names.h"
#include "zerocopy.h"

static json_t *cell_json(__u32 index, const struct copyscope *skel, const struct counters *counters)
{
	const double square = (double)(1 << SQUARE_SHIFT) * (1 << SQUARE_SHIFT);
	struct function_cell sum = {};

	if (!maps__sum(skel->maps.function_cells, index, &sum, sizeof(sum)) || (!sum.calls && !sum.self.ns))
		return NULL;
	return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:o}",
			 "side", side_names[index / CATEGORY_CNT / CONTEXTS],
			 "context", index / CATEGORY_CNT % CONTEXTS ? "softirq" : "process",
			 "category", category_names[index % CATEGORY_CNT],
			 "calls", (json_int_t)sum.calls, "bytes", (json_int_t)sum.bytes,
			 "timed_calls", (json_int_t)sum.timed_calls,
			 "self_ns", (json_int_t)sum.self.ns, "self_ns_squared", sum.squares * square,
			 "counters", counters__values_json(counters, sum.self.counters));
}

static json_t *cells_json(const struct copyscope *skel, const struct counters *counters)
{
	json_t *array = json_array();

	for (__u32 index = 0; index < FUNCTION_CELLS; index++) {
		json_t *cell = cell_json(index, skel, counters);

		if (cell)
			json_array_append_new(array, cell);
	}
	return array;
}

static json_t *roots_json(const struct copyscope *skel, const struct counters *counters)
{
	json_t *array = json_array();

	for (__u32 side = 0; side <= SIDE_OTHER; side++) {
		struct root_cell sum = {};

		if (skel->rodata->watch_mode != WATCH_NOBODY && side == SIDE_RECEIVER)
			continue;
		if (!maps__sum(skel->maps.root_cells, side, &sum, sizeof(sum)))
			continue;
		json_array_append_new(array, json_pack("{s:s, s:I, s:I, s:I, s:o}", "side", side_names[side],
			"calls", (json_int_t)sum.calls, "timed_calls", (json_int_t)sum.timed_calls,
			"inclusive_ns", (json_int_t)sum.inclusive.ns,
			"counters", counters__values_json(counters, sum.inclusive.counters)));
	}
	return array;
}

json_t *function_cells__json(const struct copyscope *skel, const struct counters *counters, unsigned int gate)
{
	return json_pack("{s:o, s:o, s:I, s:o, s:o, s:I}", "cells", cells_json(skel, counters),
			 "roots", roots_json(skel, counters), "gate", (json_int_t)gate,
			 "events", counters__events_json(counters), "read_cost", counters__cost_json(counters),
			 "page_bytes", (json_int_t)skel->rodata->page_bytes);
}

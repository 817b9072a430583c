// SPDX-License-Identifier: GPL-2.0
#include "function_cells.h"

#include <stdlib.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "abi.h"
#include "counters.h"
#include "report/maps.h"
#include "report/names.h"
#include "zerocopy.h"

static void add_reading(struct reading *sum, const struct reading *part)
{
	sum->ns += part->ns;
	for (int i = 0; i < COUNTERS_MAX; i++)
		sum->counters[i] += part->counters[i];
}

static json_t *cell_json(__u32 index, const struct function_cell *cells, int cpus, const struct counters *counters)
{
	const double square = (double)(1 << SQUARE_SHIFT) * (1 << SQUARE_SHIFT);
	struct function_cell sum = {};

	for (int cpu = 0; cpu < cpus; cpu++) {
		sum.calls += cells[cpu].calls;
		sum.bytes += cells[cpu].bytes;
		sum.timed_calls += cells[cpu].timed_calls;
		sum.squares += cells[cpu].squares;
		add_reading(&sum.self, &cells[cpu].self);
	}
	if (!sum.calls && !sum.self.ns)
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

static json_t *cells_json(const struct copyscope *skel, const struct counters *counters, int cpus)
{
	struct function_cell *cells = calloc(cpus, sizeof(*cells));
	json_t *array = json_array();

	for (__u32 index = 0; index < FUNCTION_CELLS; index++) {
		json_t *cell;

		if (!maps__cells(bpf_map__fd(skel->maps.function_cells), index, cells))
			continue;
		cell = cell_json(index, cells, cpus, counters);
		if (cell)
			json_array_append_new(array, cell);
	}
	free(cells);
	return array;
}

static json_t *roots_json(const struct copyscope *skel, const struct counters *counters, int cpus)
{
	struct root_cell *cells = calloc(cpus, sizeof(*cells));
	json_t *array = json_array();

	for (__u32 side = 0; side <= SIDE_OTHER; side++) {
		struct root_cell sum = {};

		if (skel->rodata->watch_mode != WATCH_NOBODY && side == SIDE_RECEIVER)
			continue;
		if (!maps__cells(bpf_map__fd(skel->maps.root_cells), side, cells))
			continue;
		for (int cpu = 0; cpu < cpus; cpu++) {
			sum.calls += cells[cpu].calls;
			sum.timed_calls += cells[cpu].timed_calls;
			add_reading(&sum.inclusive, &cells[cpu].inclusive);
		}
		json_array_append_new(array, json_pack("{s:s, s:I, s:I, s:I, s:o}", "side", side_names[side],
			"calls", (json_int_t)sum.calls, "timed_calls", (json_int_t)sum.timed_calls,
			"inclusive_ns", (json_int_t)sum.inclusive.ns,
			"counters", counters__values_json(counters, sum.inclusive.counters)));
	}
	free(cells);
	return array;
}

json_t *function_cells__json(const struct copyscope *skel, const struct counters *counters, unsigned int gate)
{
	int cpus = libbpf_num_possible_cpus();

	return json_pack("{s:o, s:o, s:I, s:o, s:o, s:I}", "cells", cells_json(skel, counters, cpus),
			 "roots", roots_json(skel, counters, cpus), "gate", (json_int_t)gate,
			 "events", counters__events_json(counters), "read_cost", counters__cost_json(counters),
			 "page_bytes", (json_int_t)skel->rodata->page_bytes);
}

// SPDX-License-Identifier: GPL-2.0
#include "functions.h"

#include <stdlib.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "names.h"
#include "zerocopy.h"

static json_t *cells_json(const struct copyscope *skel, int cpus)
{
	struct function_cell *cells = calloc(cpus, sizeof(*cells));
	json_t *array = json_array();

	for (__u32 index = 0; cells && index < FUNCTION_CELLS; index++) {
		struct function_cell sum = {};

		if (bpf_map_lookup_elem(bpf_map__fd(skel->maps.function_cells), &index, cells))
			continue;
		for (int cpu = 0; cpu < cpus; cpu++) {
			sum.calls += cells[cpu].calls;
			sum.bytes += cells[cpu].bytes;
			sum.self_ns += cells[cpu].self_ns;
		}
		if (!sum.calls && !sum.self_ns)
			continue;
		json_array_append_new(array, json_pack("{s:s, s:s, s:s, s:I, s:I, s:I}",
			"side", side_names[index / CATEGORY_CNT / CONTEXTS],
			"context", index / CATEGORY_CNT % CONTEXTS ? "softirq" : "process",
			"category", category_names[index % CATEGORY_CNT],
			"calls", (json_int_t)sum.calls, "bytes", (json_int_t)sum.bytes,
			"self_ns", (json_int_t)sum.self_ns));
	}
	free(cells);
	return array;
}

static json_t *roots_json(const struct copyscope *skel, int cpus)
{
	struct root_cell *cells = calloc(cpus, sizeof(*cells));
	json_t *array = json_array();

	for (__u32 side = 0; cells && side <= SIDE_OTHER; side++) {
		struct root_cell sum = {};

		if (bpf_map_lookup_elem(bpf_map__fd(skel->maps.root_cells), &side, cells))
			continue;
		for (int cpu = 0; cpu < cpus; cpu++) {
			sum.calls += cells[cpu].calls;
			sum.inclusive_ns += cells[cpu].inclusive_ns;
		}
		json_array_append_new(array, json_pack("{s:s, s:I, s:I}", "side", side_names[side],
						       "calls", (json_int_t)sum.calls,
						       "inclusive_ns", (json_int_t)sum.inclusive_ns));
	}
	free(cells);
	return array;
}

json_t *functions__json(const struct functions *functions, const struct copyscope *skel)
{
	int cpus = libbpf_num_possible_cpus();
	json_t *section = json_pack("{s:o, s:o, s:I}", "cells", cells_json(skel, cpus), "roots", roots_json(skel, cpus),
				    "page_bytes", (json_int_t)skel->rodata->page_bytes);

	zerocopy__add_json(functions__zerocopy(functions), skel, section);
	return section;
}

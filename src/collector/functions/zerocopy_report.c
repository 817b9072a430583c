// SPDX-License-Identifier: GPL-2.0
#include "zerocopy_report.h"

#include <stdlib.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "abi.h"
#include "report/cells.h"
#include "report/maps.h"
#include "report/names.h"

static json_t *owners_json(const struct copyscope *skel, int cpus)
{
	static const char *const contexts[OWNER_CONTEXTS] = { "process", "softirq", NULL };
	struct owner_cell *cells = calloc(cpus, sizeof(*cells));
	json_t *array = json_array();

	for (__u32 index = 0; index < OWNER_CELLS; index++) {
		__u32 owner = index / OWNER_CONTEXTS / (SIDE_OTHER + 1);
		struct owner_cell sum = {};

		if (!maps__cells(bpf_map__fd(skel->maps.owner_cells), index, cells))
			continue;
		for (int cpu = 0; cpu < cpus; cpu++) {
			sum.calls += cells[cpu].calls;
			sum.bytes += cells[cpu].bytes;
		}
		if (!sum.calls)
			continue;
		json_array_append_new(array, json_pack("{s:s?, s:s, s:s?, s:I, s:I}",
			"owner_side", owner == OWNER_UNKNOWN ? NULL : side_names[owner],
			"current_side", side_names[index / OWNER_CONTEXTS % (SIDE_OTHER + 1)],
			"context", contexts[index % OWNER_CONTEXTS],
			"calls", (json_int_t)sum.calls, "bytes", (json_int_t)sum.bytes));
	}
	free(cells);
	return array;
}

static void add_completions(const struct copyscope *skel, int cpus, json_t *completions, json_t *latencies)
{
	struct completion_cell *cells = calloc(cpus, sizeof(*cells));

	for (__u32 side = 0; side <= SIDE_OTHER; side++) {
		struct completion_cell sum = {};
		__u64 histogram[HIST_SLOTS] = {};

		if (!maps__cells(bpf_map__fd(skel->maps.completion_cells), side, cells))
			continue;
		for (int cpu = 0; cpu < cpus; cpu++) {
			sum.copied += cells[cpu].copied;
			sum.zerocopied += cells[cpu].zerocopied;
			sum.notifications += cells[cpu].notifications;
			sum.before_return += cells[cpu].before_return;
			for (int slot = 0; slot < HIST_SLOTS; slot++)
				histogram[slot] += cells[cpu].histogram[slot];
		}
		if (!sum.notifications)
			continue;
		json_array_append_new(completions, json_pack("{s:s, s:I, s:I}", "side", side_names[side],
							     "copied", (json_int_t)sum.copied,
							     "zerocopied", (json_int_t)sum.zerocopied));
		json_array_append_new(latencies, json_pack("{s:s, s:I, s:I, s:o}", "side", side_names[side],
							   "count", (json_int_t)sum.notifications,
							   "before_return", (json_int_t)sum.before_return,
							   "histogram", cells__histogram_json(histogram)));
	}
	free(cells);
}

void zerocopy_report__add(const struct copyscope *skel, json_t *functions)
{
	int cpus = libbpf_num_possible_cpus();
	json_t *completions = json_array(), *latencies = json_array();

	add_completions(skel, cpus, completions, latencies);
	json_object_set_new(functions, "owners", owners_json(skel, cpus));
	json_object_set_new(functions, "completions", completions);
	json_object_set_new(functions, "completion_latency", latencies);
}

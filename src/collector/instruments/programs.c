// SPDX-License-Identifier: GPL-2.0-only
#include "programs.h"

#include <stdbool.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "report/cells.h"
#include "report/maps.h"
#include "report/names.h"
#include "sampling/watch_target.h"

/* Delete a cell that was not used between this number of readings. A reading is made every five seconds. */
#define IDLE_ROUNDS 12

struct programs {
	json_t *rows;
	__u32 round;
	int map_fd;
	int cpus;
	unsigned int cells;
	/* True if there is too little room for new programs. */
	bool crowded;
};

void programs__configure(const struct watch *watch, struct copyscope *skel)
{
	bool all = watch && watch->mode == WATCH_ALL;

	bpf_map__set_max_entries(skel->maps.program_cells, all ? PROGRAM_CELLS_MAX : 1);
	bpf_map__set_max_entries(skel->maps.other_programs, all ? VOLUME_CELLS : 1);
}

static void add_row(json_t *rows, const struct program_key *key, const struct program_cell *sum, bool last)
{
	__u32 index = key->volume_index;

	if (sum->calls)
		json_array_append_new(rows, json_pack("[I, o, s, s, s, I, I, I, I, b]", (json_int_t)key->cgroup_id,
						      cells__comm_json(key->comm),
						      protocol_names[index / CALL_CNT / DIRECTION_CNT],
						      direction_names[index / CALL_CNT % DIRECTION_CNT],
						      call_names[index % CALL_CNT],
						      (json_int_t)sum->calls, (json_int_t)sum->bytes,
						      (json_int_t)sum->zerocopy_calls, (json_int_t)sum->zerocopy_bytes, last));
}

/* Add the values of all CPUs, and find the last round in which one of them changed. */
static struct program_cell sum_of(const struct program_cell *cells, int cpus)
{
	struct program_cell sum = {};

	for (int cpu = 0; cpu < cpus; cpu++) {
		sum.calls += cells[cpu].calls;
		sum.bytes += cells[cpu].bytes;
		sum.zerocopy_calls += cells[cpu].zerocopy_calls;
		sum.zerocopy_bytes += cells[cpu].zerocopy_bytes;
		if (cells[cpu].round > sum.round)
			sum.round = cells[cpu].round;
	}
	return sum;
}

static void add_program(void *context, const void *key, const void *value)
{
	struct programs *programs = context;
	struct program_cell sum = sum_of(value, programs->cpus);
	bool last = programs->crowded && sum.round + IDLE_ROUNDS < programs->round;

	programs->cells++;
	add_row(programs->rows, key, &sum, last);
	/* A call between the reading and this moment would be lost. That is improbable after a minute without calls. */
	if (last)
		bpf_map_delete_elem(programs->map_fd, key);
}

json_t *programs__json(const struct copyscope *skel)
{
	static unsigned int cells_before;
	int cpus = libbpf_num_possible_cpus();
	struct programs programs = {
		.rows = json_array(), .round = ++skel->bss->program_round, .map_fd = bpf_map__fd(skel->maps.program_cells),
		.cpus = cpus, .crowded = cells_before > PROGRAM_CELLS_MAX / 2,
	};

	maps__each(programs.map_fd, sizeof(struct program_key), sizeof(struct program_cell) * cpus, add_program, &programs);
	cells_before = programs.cells;
	for (__u32 index = 0; index < VOLUME_CELLS; index++) {
		struct program_key key = { .volume_index = index };
		struct program_cell sum = {};

		if (skel->bss->volume_used[index] && maps__sum(skel->maps.other_programs, index, &sum, sizeof(sum)))
			add_row(programs.rows, &key, &sum, false);
	}
	return programs.rows;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * programs.bpf.c - if all programs of a machine are watched: calls and bytes of each program in each cgroup.
 *
 * The functions are global, so that the verifier checks them once instead of at every place that counts.
 */
#include "map.bpf.h"
#include "watch.bpf.h"
#include "program_name.h"

MAP(PERCPU_HASH, program_cells, struct program_key, struct program_cell, PROGRAM_CELLS_MAX);
/* Calls of the programs that have no cell because the map is full. */
MAP(PERCPU_ARRAY, other_programs, __u32, struct program_cell, VOLUME_CELLS);

/* Number of times that the collector has read the cells. It shows which cells are idle. */
__u32 program_round;

/* Read the name of the running process without a helper that copies it, because this runs at each call. */
static __always_inline void read_name(__u64 comm[2])
{
	const struct task_struct *leader;

	/* New in 5.11. */
	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf)) {
		read_program_name((char *)comm);
		return;
	}
	leader = bpf_get_current_task_btf()->group_leader;
	comm[0] = ((const __u64 *)leader->comm)[0];
	comm[1] = ((const __u64 *)leader->comm)[1];
	zero_behind_name(comm);
}

static __always_inline struct program_cell *cell_of_program(__u32 index)
{
	struct program_key key = { .cgroup_id = bpf_get_current_cgroup_id(), .volume_index = index };
	struct program_cell *cell, fresh = {};

	read_name(key.comm);
	cell = bpf_map_lookup_elem(&program_cells, &key);
	if (cell)
		return cell;
	bpf_map_update_elem(&program_cells, &key, &fresh, BPF_NOEXIST);
	cell = bpf_map_lookup_elem(&program_cells, &key);
	if (cell)
		return cell;
	count_loss(LOSS_PROGRAM_MAP_FULL);
	return bpf_map_lookup_elem(&other_programs, &index);
}

__noinline int count_for_program(__u32 index, __u64 bytes)
{
	struct program_cell *cell = cell_of_program(index);

	if (!cell)
		return 0;
	cell->calls++;
	cell->bytes += bytes;
	cell->round = program_round;
	return 0;
}

__noinline int count_zerocopy_for_program(__u32 index, __u64 bytes)
{
	struct program_cell *cell = cell_of_program(index);

	if (!cell)
		return 0;
	cell->zerocopy_calls++;
	cell->zerocopy_bytes += bytes;
	return 0;
}

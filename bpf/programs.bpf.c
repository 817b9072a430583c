// SPDX-License-Identifier: GPL-2.0-only
/*
 * programs.bpf.c - if all programs of a machine are watched: calls and bytes of each program in each cgroup.
 *
 * The functions are global, so that the verifier checks them once instead of at every place that counts.
 */
#include "map.bpf.h"
#include "watch.bpf.h"

MAP(PERCPU_HASH, program_cells, struct program_key, struct program_cell, PROGRAM_CELLS_MAX);
/* Calls of the programs that have no cell because the map is full. */
MAP(PERCPU_ARRAY, other_programs, __u32, struct program_cell, VOLUME_CELLS);

/* Number of times that the collector has read the cells. It shows which cells are idle. */
__u32 program_round;

#define LOWEST_BITS 0x0101010101010101ULL
#define HIGHEST_BITS 0x8080808080808080ULL

/*
 * Return the highest bit of the first byte that is 0, or 0 if there is none. The bits above may be wrong, because a byte of
 * 0 borrows from the next one.
 */
static __always_inline __u64 end_of_name(__u64 word)
{
	__u64 ends = (word - LOWEST_BITS) & ~word & HIGHEST_BITS;

	return ends & -ends;
}

/*
 * Read the name of the running process without a helper, because this runs at each call. Old kernels leave parts of
 * earlier names behind the end of a name. Bytes are in little-endian order on both architectures.
 */
static __always_inline void read_program_name(__u64 comm[2])
{
	const struct task_struct *leader = bpf_get_current_task_btf()->group_leader;
	const __u64 *words = (const __u64 *)leader->comm;
	__u64 first = words[0], second = words[1], end = end_of_name(first);

	comm[0] = end ? first & ((end >> 7) - 1) : first;
	if (end)
		return;
	end = end_of_name(second);
	comm[1] = end ? second & ((end >> 7) - 1) : second;
}

static __always_inline struct program_cell *cell_of_program(__u32 index)
{
	struct program_key key = { .cgroup_id = bpf_get_current_cgroup_id(), .volume_index = index };
	struct program_cell *cell, fresh = {};

	read_program_name(key.comm);
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

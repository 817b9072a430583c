/* SPDX-License-Identifier: GPL-2.0-only */
/* stack_hash.h - key of a sample in the map of stacks. Plain C, so that a test can use it. */
#ifndef COPYSCOPE_STACK_HASH_H
#define COPYSCOPE_STACK_HASH_H

#include "abi.h"

static inline __u64 mix(__u64 hash, __u64 part)
{
	hash = (hash ^ part) * 0xff51afd7ed558ccdULL;
	return hash ^ hash >> 32;
}

/*
 * With 64 bits, two of ten thousand stacks collide once in 10^11 runs, so equal hashes mean equal stacks. Owner, side
 * and event are hashed as a separate word. Combined with the leaf's address, two events at neighbouring instructions
 * could have the same hash.
 */
static inline __u64 hash_stack(const struct stack_cell *cell)
{
	__u64 hash = mix(0x9e3779b97f4a7c15ULL, (__u64)cell->owner << 56 | (__u64)cell->side << 32 | cell->event);

	if (cell->user_pid)
		hash = mix(mix(mix(mix(hash, cell->user_pid), cell->frames[0]), cell->frames[1]), cell->frames[2]);
	if (cell->thread[0])
		hash = mix(mix(mix(hash, cell->thread[0]), cell->thread[1]), cell->cgroup_id);
	for (__u32 i = 0; i < STACK_DEPTH; i++) {
		if (i >= cell->depth)
			break;
		hash = mix(hash, cell->frames[i]);
	}
	return hash;
}

#endif

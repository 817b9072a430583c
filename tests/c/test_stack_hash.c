// SPDX-License-Identifier: GPL-2.0-only
/* Tests of stack_hash.h: two samples share a counter only if event, side, owner and stack are the same. */
#include <stdlib.h>

#include "../../bpf/stack_hash.h"
#include "check.h"

#define NEIGHBOURS 64

static int by_value(const void *a, const void *b)
{
	const __u64 *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

TEST("stack_hash: neighbouring instructions of several events, sides and owners are kinds of their own")
{
	static __u64 hashes[SAMPLE_CNT * (SIDE_OTHER + 1) * OWNER_CNT * NEIGHBOURS];
	struct stack_cell cell = { .depth = 2, .frames = { 0, 0xffffffff81234567 } };
	size_t count = 0;

	for (cell.event = 0; cell.event < SAMPLE_CNT; cell.event++)
		for (cell.side = 0; cell.side <= SIDE_OTHER; cell.side++)
			for (cell.owner = 0; cell.owner < OWNER_CNT; cell.owner++)
				for (int i = 0; i < NEIGHBOURS; i++) {
					cell.frames[0] = 0xffffffff81000000 + i;
					hashes[count++] = hash_stack(&cell);
				}
	qsort(hashes, count, sizeof(*hashes), by_value);
	for (size_t i = 1; i < count; i++)
		CHECK(hashes[i] != hashes[i - 1]);
}

TEST("stack_hash: a place in user mode is one of its process")
{
	struct stack_cell one = { .event = SAMPLE_CPU_CLOCK, .user_pid = 4711, .frames = { 0x401000 } }, other = one;

	CHECK_EQUAL(hash_stack(&one), hash_stack(&other));
	other.user_pid = 4712;
	CHECK(hash_stack(&one) != hash_stack(&other));
	other = one;
	other.thread[0] = 'a';
	CHECK(hash_stack(&one) != hash_stack(&other));
	one = other;
	other.cgroup_id = 7;
	CHECK(hash_stack(&one) != hash_stack(&other));
	other = one;
	other.frames[0]++;
	CHECK(hash_stack(&one) != hash_stack(&other));
}

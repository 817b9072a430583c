/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * gate.bpf.h - selects the copies that are timed, because readings of the clock and the counters are the main cost of
 * hooks.
 */
#ifndef COPYSCOPE_GATE_BPF_H
#define COPYSCOPE_GATE_BPF_H

#include "abi.h"

/*
 * One random copy in each round of gate_one_in is timed; all are counted. Written only while functions_on is not set,
 * so that no stack is in the middle of a round.
 */
__u32 gate_one_in = 1;
const volatile __u64 gate_seed;
__u64 stacks_made;

/*
 * Decide whether the copy that begins now is timed: one in each round of gate_one_in, at a random position, because a
 * fixed step could coincide with a rhythm of the traffic. xorshift64 (Marsaglia 2003): the same seed gives the same
 * positions.
 */
static __always_inline bool is_next_copy_timed(struct call_stack *stack)
{
	__u64 random = stack->random;

	if (gate_one_in == 1)
		return true;
	if (!stack->gate_left) {
		if (!random) {
			random = (gate_seed + stacks_made) * 0x9e3779b97f4a7c15ULL | 1;
			add_atomic(&stacks_made, 1);
		}
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		stack->random = random;
		stack->gate_left = gate_one_in;
		stack->gate_pick = (__u32)(random >> 32) % gate_one_in;
	}
	stack->gate_left--;
	return stack->gate_left == stack->gate_pick;
}

#endif

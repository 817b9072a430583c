/* SPDX-License-Identifier: GPL-2.0 */
/* gate.bpf.h - which of the copies are timed: a look at the clock and the counters is what hooks cost. */
#ifndef COPYSCOPE_GATE_BPF_H
#define COPYSCOPE_GATE_BPF_H

#include "abi.h"

/*
 * One copy in so many is timed, chosen at random in each round of so many; all are counted. Written while functions_on is not set: no
 * stack is in the middle of a round.
 */
__u32 gate_one_in = 1;
const volatile __u64 gate_seed;
__u64 stacks_made;

/*
 * Is the copy that begins now timed? One in each round of gate_one_in, at a place drawn anew for each round: a fixed
 * step could fall in with a rhythm of the traffic. xorshift64 (Marsaglia 2003), so that a seed gives the same places.
 */
static __always_inline bool choose(struct call_stack *stack)
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

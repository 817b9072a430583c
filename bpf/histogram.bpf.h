/* SPDX-License-Identifier: GPL-2.0-only */
/* histogram.bpf.h - slots of the log-linear histograms in abi.h. */
#ifndef COPYSCOPE_HISTOGRAM_BPF_H
#define COPYSCOPE_HISTOGRAM_BPF_H

#include "bounded.bpf.h"
#include "target.bpf.h"

/*
 * Nonzero if value > most, for values below 2^63. Without a branch, because each branch doubles the paths that the
 * verifier follows.
 */
#define EXCEEDS(value, most) (((most) - (value)) >> 63)

static __always_inline __u32 log2_floor(__u64 value)
{
	__u64 shift, result;

	result = EXCEEDS(value, 0xffffffffULL) << 5;
	value >>= result;
	shift = EXCEEDS(value, 0xffffULL) << 4;
	value >>= shift;
	result |= shift;
	shift = EXCEEDS(value, 0xffULL) << 3;
	value >>= shift;
	result |= shift;
	shift = EXCEEDS(value, 0xfULL) << 2;
	value >>= shift;
	result |= shift;
	shift = EXCEEDS(value, 0x3ULL) << 1;
	value >>= shift;
	result |= shift;
	return result | (value >> 1);
}

/* Slots 0 to 3 are exact. Slot s >= 4 starts at (4 + s % 4) << (s / 4 - 1) ns: four slots per octave. */
static __always_inline __u32 histogram_slot(__u64 ns)
{
	__u32 octave;

	if (ns < HIST_SUB)
		return ns;
	octave = log2_floor(ns);
	return (octave - HIST_SUB_BITS + 1) * HIST_SUB + ((ns >> (octave - HIST_SUB_BITS)) & (HIST_SUB - 1));
}

/* The last slot also counts longer times. */
static __always_inline void count_in(__u32 histogram[HIST_SLOTS], __u64 ns)
{
	histogram[CLAMPED(histogram_slot(ns), HIST_SLOTS)]++;
}

#endif

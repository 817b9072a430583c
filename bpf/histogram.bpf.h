/* SPDX-License-Identifier: GPL-2.0 */
/* histogram.bpf.h - the slot of a time in the log-linear histograms of abi.h. */
#ifndef COPYSCOPE_HISTOGRAM_BPF_H
#define COPYSCOPE_HISTOGRAM_BPF_H

#include "bounded.bpf.h"
#include "target.bpf.h"

/* value > most, of values below 2^63: without a branch, each of which doubles what the verifier has to follow. */
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

/* Slot s holds [(4 + s % 4) << (s / 4 - 2), ...): exact below 4 ns, then four slots per octave. */
static __always_inline __u32 histogram_slot(__u64 ns)
{
	__u32 octave;

	if (ns < HIST_SUB)
		return ns;
	octave = log2_floor(ns);
	return (octave - HIST_SUB_BITS + 1) * HIST_SUB + ((ns >> (octave - HIST_SUB_BITS)) & (HIST_SUB - 1));
}

/* The last slot holds what is beyond it, too. */
static __always_inline void count_in(__u32 histogram[HIST_SLOTS], __u64 ns)
{
	histogram[CLAMPED(histogram_slot(ns), HIST_SLOTS)]++;
}

#endif

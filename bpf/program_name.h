/* SPDX-License-Identifier: GPL-2.0-only */
/* program_name.h - makes the name of a process (comm) a key. Plain C, so that a test can use it. */
#ifndef COPYSCOPE_PROGRAM_NAME_H
#define COPYSCOPE_PROGRAM_NAME_H

#include "abi.h"

#define LOWEST_BITS 0x0101010101010101ULL
#define HIGHEST_BITS 0x8080808080808080ULL

/* Zero the first byte that is 0 and all bytes behind it. Return the word unchanged if no byte is 0. */
static inline __u64 zero_from_end(__u64 word)
{
	/* Bits above the lowest one may be wrong, because a byte of 0 borrows from the next one. */
	__u64 ends = (word - LOWEST_BITS) & ~word & HIGHEST_BITS;

	return ends ? word & (((ends & -ends) >> 7) - 1) : word;
}

/*
 * Zero the bytes behind the end of a name, where old kernels leave parts of earlier names. Bytes are in little-endian order
 * on both architectures.
 */
static inline void zero_behind_name(__u64 comm[WATCH_COMM / 8])
{
	comm[0] = zero_from_end(comm[0]);
	comm[1] = comm[0] >> 56 ? zero_from_end(comm[1]) : 0;
}

#endif

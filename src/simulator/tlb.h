/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SIMULATOR_TLB_H
#define SIMULATOR_TLB_H

#include "cache.h"

/* Entries and ways. */
struct tlb_shape {
	struct cache_shape small, huge;	/* first level: pages of 4 KiB and of 2 MiB; size_bytes: entries */
	struct cache_shape second;	/* both together */
};

enum tlb_result { TLB_L1_MISS = 1, TLB_L2_MISS = 2 };

/*
 * The data TLBs of one core. A translation is known by both of its addresses, so that other processes' are others
 * (as with PCIDs), and one that was changed does not hit. Flushes that change nothing are not seen.
 */
struct tlb {
	struct cache small, huge, second;
};

int tlb__open(struct tlb *tlb, const struct tlb_shape *shape);
void tlb__close(struct tlb *tlb);
/* Bits of enum tlb_result; 0: a hit of the first level. */
unsigned int tlb__access(struct tlb *tlb, uint64_t virtual_address, uint64_t physical_address);

#endif

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
 * The data TLBs of one core. A translation is known by both of its addresses, so that one that was changed does not
 * hit. Those of the kernel's half are global: so they are where the kernel does not hide its page tables from user
 * mode, as on the CPU that QEMU models.
 */
struct tlb {
	struct cache small, huge, second;
};

int tlb__open(struct tlb *tlb, const struct tlb_shape *shape);
void tlb__close(struct tlb *tlb);
/* Bits of enum tlb_result; 0: a hit of the first level. */
unsigned int tlb__access(struct tlb *tlb, uint64_t virtual_address, uint64_t physical_address);
void tlb__flush(struct tlb *tlb, bool global_too);
void tlb__flush_page(struct tlb *tlb, uint64_t virtual_address);

#endif

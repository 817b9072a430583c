/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SIMULATOR_TLB_H
#define SIMULATOR_TLB_H

#include "cache.h"

/* Numbers of entries and ways of the TLBs of a core. */
struct tlb_shape {
	struct cache_shape small, huge;	/* first level, for pages of 4 KiB and 2 MiB; size_bytes is the number of entries */
	struct cache_shape second;	/* second level, for both page sizes */
};

enum tlb_result { TLB_L1_MISS = 1, TLB_L2_MISS = 2 };

/*
 * Data TLBs of one core. The key of a translation contains both addresses, so that a changed translation does not
 * hit. Translations of the kernel half are global, as on kernels that do not hide their page tables from user mode.
 * The CPU that QEMU models needs no such hiding.
 */
struct tlb {
	struct cache small, huge, second;
};

int tlb__open(struct tlb *tlb, const struct tlb_shape *shape);
void tlb__close(struct tlb *tlb);
/* Return bits of enum tlb_result; 0: a first-level hit. */
unsigned int tlb__access(struct tlb *tlb, uint64_t virtual_address, uint64_t physical_address);
void tlb__flush(struct tlb *tlb, bool global_too);
void tlb__flush_page(struct tlb *tlb, uint64_t virtual_address);

#endif

// SPDX-License-Identifier: GPL-2.0-only
#include <stddef.h>

#include "tlb.h"

#define SMALL_SHIFT 12
#define HUGE_SHIFT 21
#define HUGE_BYTES (1ull << HUGE_SHIFT)
#define VIRTUAL_BITS 36
#define VIRTUAL_MASK ((1ull << VIRTUAL_BITS) - 1)
#define HUGE_KEY (1ull << 60)
#define ENTRY_GLOBAL 2u		/* a flag, in addition to CACHE_VALID */

static int open_level(struct cache *cache, const struct cache_shape *shape)
{
	return cache__open(cache, shape->size_bytes / shape->ways, shape->ways);
}

int tlb__open(struct tlb *tlb, const struct tlb_shape *shape)
{
	int err;

	*tlb = (struct tlb){ 0 };
	err = open_level(&tlb->small, &shape->small);
	if (!err)
		err = open_level(&tlb->huge, &shape->huge);
	if (!err)
		err = open_level(&tlb->second, &shape->second);
	if (err)
		tlb__close(tlb);
	return err;
}

void tlb__close(struct tlb *tlb)
{
	cache__close(&tlb->small);
	cache__close(&tlb->huge);
	cache__close(&tlb->second);
}

/* The low bits come from the virtual page and select the set. */
static uint64_t key_of(uint64_t virtual_page, uint64_t physical_page)
{
	return (virtual_page & VIRTUAL_MASK) | (physical_page & 0xffffff) << VIRTUAL_BITS;
}

/*
 * QEMU does not report the page size. On a huge page, both addresses have the same offset into it; on a small page
 * this happens by chance for one page in 512.
 */
static bool is_huge(uint64_t virtual_address, uint64_t physical_address)
{
	return !((virtual_address ^ physical_address) & (HUGE_BYTES - 1));
}

unsigned int tlb__access(struct tlb *tlb, uint64_t virtual_address, uint64_t physical_address)
{
	bool huge = is_huge(virtual_address, physical_address);
	unsigned int shift = huge ? HUGE_SHIFT : SMALL_SHIFT;
	struct cache *first = huge ? &tlb->huge : &tlb->small;
	uint64_t key = key_of(virtual_address >> shift, physical_address >> shift);
	unsigned int result = TLB_L1_MISS, flags = virtual_address >> 63 ? ENTRY_GLOBAL : 0;

	if (cache__use(first, key))
		return 0;
	cache__insert(first, key, flags);
	if (huge)
		key |= HUGE_KEY;
	if (cache__use(&tlb->second, key))
		return result;
	cache__insert(&tlb->second, key, flags);
	return result | TLB_L2_MISS;
}

void tlb__flush(struct tlb *tlb, bool global_too)
{
	struct cache *const levels[] = { &tlb->small, &tlb->huge, &tlb->second };

	for (size_t i = 0; i < sizeof(levels) / sizeof(*levels); i++)
		cache__drop(levels[i], global_too ? 0 : ENTRY_GLOBAL, 0);
}

static void drop_page(struct cache *cache, uint64_t key)
{
	cache__drop(cache, (VIRTUAL_MASK | HUGE_KEY) << CACHE_FLAG_BITS, key << CACHE_FLAG_BITS);
}

void tlb__flush_page(struct tlb *tlb, uint64_t virtual_address)
{
	uint64_t small = virtual_address >> SMALL_SHIFT & VIRTUAL_MASK;
	uint64_t huge = virtual_address >> HUGE_SHIFT & VIRTUAL_MASK;

	drop_page(&tlb->small, small);
	drop_page(&tlb->huge, huge);
	drop_page(&tlb->second, small);
	drop_page(&tlb->second, huge | HUGE_KEY);
}

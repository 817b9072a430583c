// SPDX-License-Identifier: GPL-2.0
#include <stddef.h>

#include "tlb.h"

#define SMALL_SHIFT 12
#define HUGE_SHIFT 21
#define HUGE_BYTES (1ull << HUGE_SHIFT)
#define VIRTUAL_BITS 36
#define HUGE_KEY (1ull << 60)

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

/* The low bits are those of the virtual page: they choose the set. */
static uint64_t key_of(uint64_t virtual_page, uint64_t physical_page)
{
	return (virtual_page & ((1ull << VIRTUAL_BITS) - 1)) | (physical_page & 0xffffff) << VIRTUAL_BITS;
}

/*
 * Nobody tells how large the page is. On a huge page both addresses are the same distance into it, on a small one
 * they are so by chance, for one page in 512.
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
	unsigned int result = TLB_L1_MISS;

	if (cache__use(first, key))
		return 0;
	cache__insert(first, key, 0);
	if (huge)
		key |= HUGE_KEY;
	if (cache__use(&tlb->second, key))
		return result;
	cache__insert(&tlb->second, key, 0);
	return result | TLB_L2_MISS;
}

/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SIMULATOR_PAGES_H
#define SIMULATOR_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#define PAGE_SHIFT 12

/*
 * Cache of page translations. Querying QEMU takes longer than all other work for an access, so a core caches results
 * until it invalidates translations.
 */
struct pages {
	struct {
		uint64_t virtual_page, physical_page;
	} entries[256];
};

static inline unsigned int pages__index(uint64_t virtual_page)
{
	return virtual_page % 256;
}

/* Virtual page 0 is never mapped and marks a free entry. */
static inline bool pages__find(const struct pages *pages, uint64_t address, uint64_t *physical)
{
	uint64_t page = address >> PAGE_SHIFT;

	if (pages->entries[pages__index(page)].virtual_page != page)
		return false;
	*physical = pages->entries[pages__index(page)].physical_page << PAGE_SHIFT |
		    (address & ((1u << PAGE_SHIFT) - 1));
	return true;
}

static inline void pages__keep(struct pages *pages, uint64_t address, uint64_t physical)
{
	uint64_t page = address >> PAGE_SHIFT;

	pages->entries[pages__index(page)].virtual_page = page;
	pages->entries[pages__index(page)].physical_page = physical >> PAGE_SHIFT;
}

static inline void pages__forget(struct pages *pages)
{
	*pages = (struct pages){ 0 };
}

#endif

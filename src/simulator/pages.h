/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SIMULATOR_PAGES_H
#define SIMULATOR_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#define PAGE_SHIFT 12

/*
 * Where virtual pages lie. Asking QEMU takes longer than all else that is done with an access; a core remembers what
 * it was told until it drops translations.
 */
struct pages {
	struct {
		uint64_t virtual_page, physical_page;
	} known[256];
};

static inline unsigned int pages__place(uint64_t virtual_page)
{
	return virtual_page % 256;
}

/* Virtual page 0 is never mapped: it stands for a free place. */
static inline bool pages__find(const struct pages *pages, uint64_t address, uint64_t *physical)
{
	uint64_t page = address >> PAGE_SHIFT;

	if (pages->known[pages__place(page)].virtual_page != page)
		return false;
	*physical = pages->known[pages__place(page)].physical_page << PAGE_SHIFT |
		    (address & ((1u << PAGE_SHIFT) - 1));
	return true;
}

static inline void pages__keep(struct pages *pages, uint64_t address, uint64_t physical)
{
	uint64_t page = address >> PAGE_SHIFT;

	pages->known[pages__place(page)].virtual_page = page;
	pages->known[pages__place(page)].physical_page = physical >> PAGE_SHIFT;
}

static inline void pages__forget(struct pages *pages)
{
	*pages = (struct pages){ 0 };
}

#endif

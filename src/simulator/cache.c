// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"

#define PREFETCH_BORDER_BYTES 4096u	/* a prefetcher of physical lines cannot know the next page */

int cache__open(struct cache *cache, uint64_t sets, unsigned int ways)
{
	*cache = (struct cache){ .sets = sets, .ways = ways };
	cache->entries = calloc(sets * ways, sizeof(*cache->entries));
	return cache->entries ? 0 : -ENOMEM;
}

void cache__close(struct cache *cache)
{
	free(cache->entries);
	cache->entries = NULL;
}

static uint64_t *set_of(const struct cache *cache, uint64_t key)
{
	bool power_of_2 = !(cache->sets & (cache->sets - 1));

	/* Avoid a division, which costs more than all other steps of a lookup. */
	return cache->entries + (power_of_2 ? key & (cache->sets - 1) : key % cache->sets) * cache->ways;
}

uint64_t *cache__find(const struct cache *cache, uint64_t key)
{
	uint64_t *set = set_of(cache, key);

	for (unsigned int way = 0; way < cache->ways && set[way]; way++)
		if (cache__key(set[way]) == key)
			return &set[way];
	return NULL;
}

uint64_t *cache__use(struct cache *cache, uint64_t key)
{
	uint64_t *entry = cache__find(cache, key);
	uint64_t *set = set_of(cache, key);
	uint64_t used;

	if (!entry || entry == set)
		return entry;
	used = *entry;
	memmove(set + 1, set, (entry - set) * sizeof(*set));
	*set = used;
	return set;
}

uint64_t cache__insert(struct cache *cache, uint64_t key, unsigned int flags)
{
	uint64_t *set = set_of(cache, key);
	uint64_t last = set[cache->ways - 1];

	memmove(set + 1, set, (cache->ways - 1) * sizeof(*set));
	*set = key << CACHE_FLAG_BITS | CACHE_VALID | flags;
	return last;
}

uint64_t cache__remove(struct cache *cache, uint64_t key)
{
	uint64_t *entry = cache__find(cache, key);
	uint64_t *end = set_of(cache, key) + cache->ways;
	uint64_t removed;

	if (!entry)
		return 0;
	removed = *entry;
	memmove(entry, entry + 1, (end - entry - 1) * sizeof(*entry));
	end[-1] = 0;
	return removed;
}

void cache__drop(struct cache *cache, uint64_t mask, uint64_t bits)
{
	uint64_t *end = cache->entries + cache->sets * cache->ways;

	for (uint64_t *set = cache->entries; set < end; set += cache->ways) {
		unsigned int kept = 0;

		for (unsigned int way = 0; way < cache->ways; way++)
			if (set[way] && (set[way] & mask) != bits)
				set[kept++] = set[way];
		memset(set + kept, 0, (cache->ways - kept) * sizeof(*set));
	}
}

static int open_level(struct cache *cache, const struct cache_shape *shape, unsigned int line_bytes)
{
	if (!shape->ways)
		return 0;
	return cache__open(cache, shape->size_bytes / line_bytes / shape->ways, shape->ways);
}

int hierarchy__open(struct hierarchy *hierarchy, const struct hierarchy_shape *shape)
{
	int err;

	*hierarchy = (struct hierarchy){ .shape = *shape };
	err = open_level(&hierarchy->llc, &shape->llc, shape->line_bytes);
	for (unsigned int core = 0; core < shape->cores && !err; core++) {
		err = open_level(&hierarchy->l1d[core], &shape->l1d, shape->line_bytes);
		if (!err)
			err = open_level(&hierarchy->l2[core], &shape->l2, shape->line_bytes);
	}
	if (err)
		hierarchy__close(hierarchy);
	return err;
}

void hierarchy__close(struct hierarchy *hierarchy)
{
	for (unsigned int core = 0; core < CORES_MAX; core++) {
		cache__close(&hierarchy->l1d[core]);
		cache__close(&hierarchy->l2[core]);
	}
	cache__close(&hierarchy->llc);
}

/* Remove a line from a core. Return its flags, or 0. */
static unsigned int drop(struct hierarchy *hierarchy, unsigned int core, uint64_t line)
{
	uint64_t lost = cache__remove(&hierarchy->l2[core], line);

	/* The L1D holds only lines that the L2 holds. */
	if (lost)
		lost |= cache__remove(&hierarchy->l1d[core], line);
	return lost & (CACHE_VALID | CACHE_MODIFIED);
}

/* Another core reads a line, which this core keeps. Return its previous flags, or 0. */
static unsigned int share(struct hierarchy *hierarchy, unsigned int core, uint64_t line)
{
	uint64_t *outer = cache__find(&hierarchy->l2[core], line);
	uint64_t *inner = outer ? cache__find(&hierarchy->l1d[core], line) : NULL;
	uint64_t flags = 0;

	if (outer) {
		flags |= *outer;
		*outer &= ~(uint64_t)CACHE_MODIFIED;
	}
	if (inner) {
		flags |= *inner;
		*inner &= ~(uint64_t)CACHE_MODIFIED;
	}
	return flags & (CACHE_VALID | CACHE_MODIFIED);
}

static unsigned int snoop_others(struct hierarchy *hierarchy, unsigned int core, uint64_t line, bool write)
{
	unsigned int flags = 0;

	for (unsigned int other = 0; other < hierarchy->shape.cores; other++)
		if (other != core)
			flags |= write ? drop(hierarchy, other, line) : share(hierarchy, other, line);
	return flags;
}

/* Look up a line in an inclusive LLC and insert it if absent. Lines that the LLC evicts must leave the cores, too. */
static bool access_inclusive_llc(struct hierarchy *hierarchy, uint64_t line)
{
	uint64_t evicted;

	if (cache__use(&hierarchy->llc, line))
		return true;
	evicted = cache__insert(&hierarchy->llc, line, 0);
	for (unsigned int core = 0; evicted && core < hierarchy->shape.cores; core++)
		drop(hierarchy, core, cache__key(evicted));
	return false;
}

/* Fetch an absent line into a core's L2. */
static unsigned int fetch(struct hierarchy *hierarchy, unsigned int core, uint64_t line, bool write,
			  unsigned int flags)
{
	unsigned int others = snoop_others(hierarchy, core, line, write);
	bool has_llc = hierarchy->shape.llc.ways;
	unsigned int result = 0;
	bool hit_llc = false;
	uint64_t evicted;

	if (others)
		result |= others & CACHE_MODIFIED ? ACCESS_REMOTE | ACCESS_DIRTY : ACCESS_REMOTE;
	if (has_llc)
		hit_llc = hierarchy->shape.victim ? cache__remove(&hierarchy->llc, line) != 0
						: access_inclusive_llc(hierarchy, line);
	if (!hit_llc && !others)
		result |= ACCESS_LLC_MISS;
	evicted = cache__insert(&hierarchy->l2[core], line, flags);
	if (!evicted)
		return result;
	cache__remove(&hierarchy->l1d[core], cache__key(evicted));
	if (has_llc && hierarchy->shape.victim && !cache__use(&hierarchy->llc, cache__key(evicted)))
		cache__insert(&hierarchy->llc, cache__key(evicted), 0);
	return result;
}

static void prefetch(struct hierarchy *hierarchy, unsigned int core, uint64_t line)
{
	uint64_t per_page = PREFETCH_BORDER_BYTES / hierarchy->shape.line_bytes;

	if (hierarchy->shape.prefetch_next && (line + 1) % per_page &&
	    !cache__find(&hierarchy->l2[core], line + 1))
		fetch(hierarchy, core, line + 1, false, CACHE_PREFETCHED);
}

static unsigned int fill_l1(struct hierarchy *hierarchy, unsigned int core, uint64_t line, bool write)
{
	uint64_t *outer = cache__use(&hierarchy->l2[core], line);
	unsigned int result = ACCESS_L1_MISS;
	bool wants_prefetch = !outer;
	uint64_t evicted;

	if (!outer) {
		result |= ACCESS_L2_MISS | fetch(hierarchy, core, line, write, 0);
	} else {
		wants_prefetch = *outer & CACHE_PREFETCHED;
		*outer &= ~(uint64_t)CACHE_PREFETCHED;
		if (write && !(*outer & CACHE_MODIFIED))
			snoop_others(hierarchy, core, line, true);
	}
	evicted = cache__insert(&hierarchy->l1d[core], line, write ? CACHE_MODIFIED : 0);
	if (evicted & CACHE_MODIFIED)
		*cache__find(&hierarchy->l2[core], cache__key(evicted)) |= CACHE_MODIFIED;
	/* The use of a prefetched line triggers the prefetch of the next one. */
	if (wants_prefetch)
		prefetch(hierarchy, core, line);
	return result;
}

unsigned int hierarchy__access(struct hierarchy *hierarchy, unsigned int core, uint64_t line, bool write)
{
	uint64_t *entry = cache__use(&hierarchy->l1d[core], line);

	if (!entry)
		return fill_l1(hierarchy, core, line, write);
	if (write && !(*entry & CACHE_MODIFIED)) {
		snoop_others(hierarchy, core, line, true);
		*entry |= CACHE_MODIFIED;
	}
	return 0;
}

void hierarchy__device_write(struct hierarchy *hierarchy, uint64_t line, bool into_llc)
{
	for (unsigned int core = 0; core < hierarchy->shape.cores; core++)
		drop(hierarchy, core, line);
	if (!hierarchy->shape.llc.ways)
		return;
	if (!into_llc)
		cache__remove(&hierarchy->llc, line);
	else if (!hierarchy->shape.victim)
		access_inclusive_llc(hierarchy, line);
	else if (!cache__use(&hierarchy->llc, line))
		cache__insert(&hierarchy->llc, line, 0);
}

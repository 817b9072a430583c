/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SIMULATOR_CACHE_H
#define SIMULATOR_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#define CORES_MAX 8u

/*
 * A set-associative store of keys (lines, pages) with true LRU: each set lists its keys from the one used last to
 * the one that goes next. Free places are at the end.
 */
struct cache {
	uint64_t *entries;	/* key << CACHE_FLAG_BITS | flags; 0: free */
	uint64_t sets;
	unsigned int ways;
};

enum cache_flag { CACHE_VALID = 1, CACHE_MODIFIED = 2, CACHE_PREFETCHED = 4 };
#define CACHE_FLAG_BITS 3

int cache__open(struct cache *cache, uint64_t sets, unsigned int ways);
void cache__close(struct cache *cache);
/* The entry of a key, now the one used last; NULL: it is not there. */
uint64_t *cache__use(struct cache *cache, uint64_t key);
/* The same without using it. */
uint64_t *cache__find(const struct cache *cache, uint64_t key);
/* A key that is not there. Returns the entry that had to go, or 0. */
uint64_t cache__insert(struct cache *cache, uint64_t key, unsigned int flags);
/* Returns the entry as it was, or 0. */
uint64_t cache__remove(struct cache *cache, uint64_t key);
/* Of all entries those whose bits under the mask are these. */
void cache__drop(struct cache *cache, uint64_t mask, uint64_t bits);

static inline uint64_t cache__key(uint64_t entry)
{
	return entry >> CACHE_FLAG_BITS;
}

struct cache_shape {
	uint64_t size_bytes;
	unsigned int ways;	/* 0: there is no such cache */
};

struct hierarchy_shape {
	unsigned int line_bytes;
	unsigned int cores;
	struct cache_shape l1d, l2, llc;
	unsigned int victim;	/* 1: the LLC holds what the L2s drop; else all that they hold, too */
	unsigned int prefetch_next;
};

/* What an access of one line was; 0: it hit the L1D. */
enum access_result {
	ACCESS_L1_MISS = 1,
	ACCESS_L2_MISS = 2,
	ACCESS_LLC_MISS = 4,	/* nor does another core have it */
	ACCESS_REMOTE = 8,	/* an L2 miss of a line that another core has */
	ACCESS_DIRTY = 16,	/* and has changed */
};

/* L1D and L2 (which holds all that the L1D holds) of each core, one LLC. Write-allocate, write-back. */
struct hierarchy {
	struct hierarchy_shape shape;
	struct cache l1d[CORES_MAX], l2[CORES_MAX], llc;
};

/* The shape must be sound (model__parse()). 0 or -ENOMEM. */
int hierarchy__open(struct hierarchy *hierarchy, const struct hierarchy_shape *shape);
void hierarchy__close(struct hierarchy *hierarchy);
/* One core reads or writes one line: bits of enum access_result. */
unsigned int hierarchy__access(struct hierarchy *hierarchy, unsigned int core, uint64_t line, bool write);
/* A device writes a line to memory: nobody has it any more, or (DDIO) the LLC alone. */
void hierarchy__device_write(struct hierarchy *hierarchy, uint64_t line, bool into_llc);

#endif

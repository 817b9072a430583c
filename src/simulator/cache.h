/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SIMULATOR_CACHE_H
#define SIMULATOR_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#define CORES_MAX 8u

/*
 * A set-associative store of keys (lines, pages) with true LRU replacement. Each set lists its keys from the most
 * recently used to the next victim, followed by the free entries.
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
/* Return the entry of a key and mark it as most recently used; NULL if absent. */
uint64_t *cache__use(struct cache *cache, uint64_t key);
/* As cache__use(), without changing the order. */
uint64_t *cache__find(const struct cache *cache, uint64_t key);
/* Insert an absent key. Return the evicted entry, or 0. */
uint64_t cache__insert(struct cache *cache, uint64_t key, unsigned int flags);
/* Remove a key. Return its entry, or 0 if absent. */
uint64_t cache__remove(struct cache *cache, uint64_t key);
/* Remove all entries whose bits under `mask` equal `bits`. */
void cache__drop(struct cache *cache, uint64_t mask, uint64_t bits);

static inline uint64_t cache__key(uint64_t entry)
{
	return entry >> CACHE_FLAG_BITS;
}

struct cache_shape {
	uint64_t size_bytes;
	unsigned int ways;	/* 0: the machine has no cache of this level */
};

struct hierarchy_shape {
	unsigned int line_bytes;
	unsigned int cores;
	struct cache_shape l1d, l2, llc;
	unsigned int victim;	/* 1: the LLC holds lines that the L2s evict; 0: it also holds all lines of the L2s */
	unsigned int prefetch_next;
};

/* Result of an access to one cache line, as a set of bits; 0: an L1D hit. */
enum access_result {
	ACCESS_L1_MISS = 1,
	ACCESS_L2_MISS = 2,
	ACCESS_LLC_MISS = 4,	/* an LLC miss of a line that no other core has */
	ACCESS_REMOTE = 8,	/* an L2 miss of a line that another core has */
	ACCESS_DIRTY = 16,	/* together with ACCESS_REMOTE: the other core has modified the line */
};

/* An L1D and an inclusive L2 per core, and one LLC. Write-allocate, write-back. */
struct hierarchy {
	struct hierarchy_shape shape;
	struct cache l1d[CORES_MAX], l2[CORES_MAX], llc;
};

/* Open the caches; model__parse() must have checked the shape. Return 0 or -ENOMEM. */
int hierarchy__open(struct hierarchy *hierarchy, const struct hierarchy_shape *shape);
void hierarchy__close(struct hierarchy *hierarchy);
/* Access one line from one core. Return bits of enum access_result. */
unsigned int hierarchy__access(struct hierarchy *hierarchy, unsigned int core, uint64_t line, bool write);
/* A device writes a line to memory. Afterwards no cache holds the line, or with DDIO only the LLC. */
void hierarchy__device_write(struct hierarchy *hierarchy, uint64_t line, bool into_llc);

#endif

// SPDX-License-Identifier: GPL-2.0-only
/* Tests of the simulated caches and TLBs: simple walks with known miss counts, and comparison with a slow reference model. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/simulator/cache.h"
#include "../../src/simulator/tlb.h"
#include "check.h"

#define LINE 64u

static const struct hierarchy_shape usual = {
	.line_bytes = LINE, .cores = 2,
	.l1d = { 32u << 10, 8 }, .l2 = { 1u << 20, 16 }, .llc = { 32u << 20, 16 },
};

struct misses {
	uint64_t l1, l2, llc, remote, dirty;
};

static void add(struct misses *misses, unsigned int result)
{
	misses->l1 += !!(result & ACCESS_L1_MISS);
	misses->l2 += !!(result & ACCESS_L2_MISS);
	misses->llc += !!(result & ACCESS_LLC_MISS);
	misses->remote += !!(result & ACCESS_REMOTE);
	misses->dirty += !!(result & ACCESS_DIRTY);
}

static struct misses walk(const struct hierarchy_shape *shape, uint64_t bytes, uint64_t stride, unsigned int rounds)
{
	struct misses misses = { 0 };
	struct hierarchy caches;

	if (hierarchy__open(&caches, shape))
		return misses;
	for (unsigned int round = 0; round < rounds; round++)
		for (uint64_t at = 0; at < bytes; at += stride)
			add(&misses, hierarchy__access(&caches, 0, at / LINE, false));
	hierarchy__close(&caches);
	return misses;
}

TEST("caches: walks over memory miss what theory says")
{
	static const struct {
		uint64_t bytes, stride;
		struct misses expected;		/* misses of four rounds */
	} walks[] = {
		/* fits the L1D: each line misses once */
		{ 8u << 10, 8, { 128, 128, 128, 0, 0 } },
		{ 32u << 10, 8, { 512, 512, 512, 0, 0 } },
		/* does not fit the L1D: with LRU every line of such a walk misses */
		{ 128u << 10, 64, { 4 * 2048, 2048, 2048, 0, 0 } },
		{ 1280u << 10, 64, { 4 * 20480, 4 * 20480, 20480, 0, 0 } },
		/* 16 lines that share one of the 64 sets of 8 ways */
		{ 64u << 10, 4096, { 4 * 16, 16, 16, 0, 0 } },
		{ 32u << 10, 4096, { 8, 8, 8, 0, 0 } },
	};

	for (size_t i = 0; i < sizeof(walks) / sizeof(*walks); i++) {
		struct misses found = walk(&usual, walks[i].bytes, walks[i].stride, 4);

		CHECK_EQUAL(found.l1, walks[i].expected.l1);
		CHECK_EQUAL(found.l2, walks[i].expected.l2);
		CHECK_EQUAL(found.llc, walks[i].expected.llc);
		CHECK_EQUAL(found.remote, 0);
	}
}

TEST("caches: the number of sets need not be a power of 2")
{
	struct hierarchy_shape shape = usual;

	shape.l1d = (struct cache_shape){ 24 * 12 * LINE, 12 };
	CHECK_EQUAL(walk(&shape, 24 * 12 * LINE, LINE, 3).l1, 24 * 12);
	CHECK_EQUAL(walk(&shape, 25 * 12 * LINE, 24 * LINE, 3).l1, 13 * 3);
}

TEST("caches: with a prefetcher the next line is there already")
{
	struct hierarchy_shape shape = usual;
	struct misses found;

	shape.prefetch_next = true;
	found = walk(&shape, 1u << 20, 8, 1);
	CHECK_EQUAL(found.l1, 16384);
	/* Only the first line of each 4 KiB page misses the L2. */
	CHECK_EQUAL(found.l2, 256);
}

TEST("caches: a line moves between cores")
{
	struct hierarchy caches;

	CHECK_EQUAL(hierarchy__open(&caches, &usual), 0);
	CHECK_EQUAL(hierarchy__access(&caches, 0, 7, true), ACCESS_L1_MISS | ACCESS_L2_MISS | ACCESS_LLC_MISS);
	CHECK_EQUAL(hierarchy__access(&caches, 1, 7, false),
		    ACCESS_L1_MISS | ACCESS_L2_MISS | ACCESS_REMOTE | ACCESS_DIRTY);
	CHECK_EQUAL(hierarchy__access(&caches, 1, 7, false), 0);
	CHECK_EQUAL(hierarchy__access(&caches, 0, 7, false), 0);
	/* Both cores have the unchanged line. A write removes it from the other core. */
	CHECK_EQUAL(hierarchy__access(&caches, 1, 7, true), 0);
	CHECK_EQUAL(hierarchy__access(&caches, 0, 7, true),
		    ACCESS_L1_MISS | ACCESS_L2_MISS | ACCESS_REMOTE | ACCESS_DIRTY);
	CHECK_EQUAL(hierarchy__access(&caches, 1, 8, false), ACCESS_L1_MISS | ACCESS_L2_MISS | ACCESS_LLC_MISS);
	CHECK_EQUAL(hierarchy__access(&caches, 0, 8, false), ACCESS_L1_MISS | ACCESS_L2_MISS | ACCESS_REMOTE);
	hierarchy__close(&caches);
}

/* A walk over 160 KiB fits an L2 of 64 KiB plus an LLC of 128 KiB if the LLC holds only lines evicted from the L2. */
TEST("caches: a victim cache adds to the L2")
{
	struct hierarchy_shape shape = usual;

	shape.l2 = (struct cache_shape){ 64u << 10, 16 };
	shape.llc = (struct cache_shape){ 128u << 10, 16 };
	CHECK_EQUAL(walk(&shape, 160u << 10, 64, 4).llc, 4 * 2560);
	shape.victim = true;
	CHECK_EQUAL(walk(&shape, 160u << 10, 64, 4).llc, 2560);
	shape.llc = (struct cache_shape){ 0 };
	CHECK_EQUAL(walk(&shape, 160u << 10, 64, 4).llc, 4 * 2560);
}

/* A core reads what a device has written from memory or the LLC, not from a stale copy in its own caches. */
TEST("caches: what a device writes is in memory, or in the LLC")
{
	struct hierarchy_shape shape = usual;
	struct hierarchy caches;

	for (unsigned int victim = 0; victim < 2; victim++) {
		shape.victim = victim;
		CHECK_EQUAL(hierarchy__open(&caches, &shape), 0);
		hierarchy__access(&caches, 0, 7, true);
		hierarchy__access(&caches, 1, 9, false);
		hierarchy__device_write(&caches, 7, false);
		hierarchy__device_write(&caches, 9, true);
		CHECK_EQUAL(hierarchy__access(&caches, 1, 7, false),
			    ACCESS_L1_MISS | ACCESS_L2_MISS | ACCESS_LLC_MISS);
		CHECK_EQUAL(hierarchy__access(&caches, 1, 9, false), ACCESS_L1_MISS | ACCESS_L2_MISS);
		hierarchy__close(&caches);
	}
}

/* Slow reference model: each place of a cache has a time of last use. */
#define CORES 3u
#define PLACES 64u

struct place {
	uint64_t line, used;
	bool taken, modified;
};

struct level {
	struct place places[PLACES];
	unsigned int sets, ways;
};

static struct {
	struct level l1[CORES], l2[CORES], llc;
	uint64_t now;
	bool victim;
} naive;

static struct place *naive_find(struct level *level, uint64_t line)
{
	for (unsigned int i = 0; i < level->sets * level->ways; i++)
		if (level->places[i].taken && level->places[i].line == line)
			return &level->places[i];
	return NULL;
}

/* Insert a line. Return the evicted place; its `taken` is false if nothing was evicted. */
static struct place naive_insert(struct level *level, uint64_t line, bool modified)
{
	struct place *set = &level->places[line % level->sets * level->ways], *oldest = set, gone;

	for (unsigned int way = 0; way < level->ways; way++) {
		if (!set[way].taken) {
			oldest = &set[way];
			break;
		}
		if (set[way].used < oldest->used)
			oldest = &set[way];
	}
	gone = *oldest;
	*oldest = (struct place){ line, naive.now++, true, modified };
	return gone;
}

static bool naive_remove(struct level *level, uint64_t line)
{
	struct place *place = naive_find(level, line);

	if (place)
		place->taken = false;
	return place;
}

static unsigned int naive_access(unsigned int core, uint64_t line, bool write)
{
	struct place *inner = naive_find(&naive.l1[core], line), *outer = naive_find(&naive.l2[core], line), *found, gone;
	unsigned int result = inner ? 0 : outer ? ACCESS_L1_MISS : ACCESS_L1_MISS | ACCESS_L2_MISS;
	bool elsewhere = false, changed = false;

	for (unsigned int other = 0; other < CORES; other++) {
		struct place *a = naive_find(&naive.l1[other], line), *b = naive_find(&naive.l2[other], line);

		if (other == core || (!write && outer))
			continue;
		elsewhere |= a || b;
		changed |= (a && a->modified) || (b && b->modified);
		if (a)
			a->modified = false, a->taken = !write;
		if (b)
			b->modified = false, b->taken = !write;
	}
	if (!outer) {
		found = naive_find(&naive.llc, line);
		if (elsewhere)
			result |= changed ? ACCESS_REMOTE | ACCESS_DIRTY : ACCESS_REMOTE;
		else if (!found)
			result |= ACCESS_LLC_MISS;
		if (found && naive.victim)
			found->taken = false;
		if (found && !naive.victim)
			found->used = naive.now++;
		if (!found && !naive.victim) {
			gone = naive_insert(&naive.llc, line, false);
			for (unsigned int i = 0; gone.taken && i < CORES; i++) {
				naive_remove(&naive.l1[i], gone.line);
				naive_remove(&naive.l2[i], gone.line);
			}
		}
		gone = naive_insert(&naive.l2[core], line, false);
		if (gone.taken) {
			naive_remove(&naive.l1[core], gone.line);
			found = naive_find(&naive.llc, gone.line);
			if (naive.victim && found)
				found->used = naive.now++;
			if (naive.victim && !found)
				naive_insert(&naive.llc, gone.line, false);
		}
	} else if (!inner) {
		outer->used = naive.now++;
	}
	if (inner) {
		inner->used = naive.now++;
		inner->modified |= write;
		return result;
	}
	gone = naive_insert(&naive.l1[core], line, write);
	if (gone.taken && gone.modified)
		naive_find(&naive.l2[core], gone.line)->modified = true;
	return result;
}

static void check_random(uint64_t seed, bool victim, unsigned int lines)
{
	const struct hierarchy_shape shape = {
		.line_bytes = LINE, .cores = CORES, .victim = victim,
		.l1d = { 2 * 2 * LINE, 2 }, .l2 = { 3 * 4 * LINE, 4 }, .llc = { 4 * 8 * LINE, 8 },
	};
	struct hierarchy caches;

	memset(&naive, 0, sizeof(naive));
	naive.victim = victim;
	for (unsigned int core = 0; core < CORES; core++) {
		naive.l1[core].sets = 2, naive.l1[core].ways = 2;
		naive.l2[core].sets = 3, naive.l2[core].ways = 4;
	}
	naive.llc.sets = 4, naive.llc.ways = 8;
	CHECK_EQUAL(hierarchy__open(&caches, &shape), 0);
	for (unsigned int i = 0; i < 2000 && !check_failed; i++) {
		unsigned int core = next_random(&seed) % CORES;
		uint64_t line = next_random(&seed) % lines;
		bool write = next_random(&seed) % 3 == 0;
		unsigned int expected = naive_access(core, line, write);
		unsigned int found = hierarchy__access(&caches, core, line, write);

		if (expected != found)
			printf("  access %u: core %u, line %u\n", i, core, (unsigned int)line);
		if (expected != found)
			check_failed = true;
	}
	hierarchy__close(&caches);
}

TEST("caches: random accesses of three cores are those of the slow model")
{
	for (unsigned int i = 0; i < 6; i++) {
		check_random(1 + i, i % 2, 20);
		check_random(100 + i, i % 2, 45);
		check_random(200 + i, i % 2, 90);
	}
}

static const struct tlb_shape usual_tlb = { { 64, 4 }, { 32, 4 }, { 2048, 16 } };

static struct misses walk_pages(uint64_t bytes, uint64_t stride, uint64_t physical_offset)
{
	struct misses misses = { 0 };
	struct tlb tlb;

	if (tlb__open(&tlb, &usual_tlb))
		return misses;
	for (unsigned int round = 0; round < 4; round++)
		for (uint64_t at = 0; at < bytes; at += stride) {
			unsigned int result = tlb__access(&tlb, (1ull << 45) + at, physical_offset + at);

			misses.l1 += !!(result & TLB_L1_MISS);
			misses.l2 += !!(result & TLB_L2_MISS);
		}
	tlb__close(&tlb);
	return misses;
}

TEST("TLB: pages fit as theory says")
{
	/* 64 pages fit the first level, 512 only the second. 1 GiB has 512 huge pages. */
	CHECK_EQUAL(walk_pages(64u << 12, 64, 4096).l1, 64);
	CHECK_EQUAL(walk_pages(512u << 12, 512, 4096).l1, 4 * 512);
	CHECK_EQUAL(walk_pages(512u << 12, 512, 4096).l2, 512);
	CHECK_EQUAL(walk_pages(4096u << 12, 4096, 4096).l2, 4 * 4096);
	CHECK_EQUAL(walk_pages(512u << 12, 512, 1ull << 21).l1, 1);
	CHECK_EQUAL(walk_pages(1u << 30, 1u << 21, 1ull << 30).l1, 4 * 512);
	CHECK_EQUAL(walk_pages(1u << 30, 1u << 21, 1ull << 30).l2, 512);
}

/* Two processes may have different pages at one virtual address. */
TEST("TLB: a page is known by both of its addresses")
{
	struct tlb tlb;

	CHECK_EQUAL(tlb__open(&tlb, &usual_tlb), 0);
	CHECK_EQUAL(tlb__access(&tlb, 0x400000, 0x1000), TLB_L1_MISS | TLB_L2_MISS);
	CHECK_EQUAL(tlb__access(&tlb, 0x400010, 0x1010), 0);
	CHECK_EQUAL(tlb__access(&tlb, 0x400000, 0x2000), TLB_L1_MISS | TLB_L2_MISS);
	CHECK_EQUAL(tlb__access(&tlb, 0x400000, 0x1000), 0);
	tlb__close(&tlb);
}

/* Any address in a huge page invalidates it. Global pages stay when the others are dropped, whatever their order in the set. */
TEST("TLB: what is dropped is missed again")
{
	const uint64_t user = 1ull << 45, kernel = 0xffff888000000000, huge = 3ull << 21;
	struct tlb tlb;

	CHECK_EQUAL(tlb__open(&tlb, &usual_tlb), 0);
	/* Four pages of the same set (16 sets of 4 ways). */
	for (uint64_t i = 0; i < 4; i++)
		tlb__access(&tlb, (i % 2 ? kernel : user) + (i << 16), 0x1000 + (i << 16));
	tlb__access(&tlb, huge, 1ull << 21);
	tlb__flush_page(&tlb, huge + 0x12345);
	CHECK_EQUAL(tlb__access(&tlb, huge, 1ull << 21), TLB_L1_MISS | TLB_L2_MISS);
	tlb__flush(&tlb, false);
	for (uint64_t i = 0; i < 4; i++)
		CHECK_EQUAL(tlb__access(&tlb, (i % 2 ? kernel : user) + (i << 16), 0x1000 + (i << 16)),
			    i % 2 ? 0 : TLB_L1_MISS | TLB_L2_MISS);
	tlb__flush(&tlb, true);
	CHECK_EQUAL(tlb__access(&tlb, kernel + (1 << 16), 0x11000), TLB_L1_MISS | TLB_L2_MISS);
	tlb__close(&tlb);
}

/* SPDX-License-Identifier: GPL-2.0-only */
/* known_work.h - work whose instructions, cycles and cache misses are known, to check the events of a PMU. */
#ifndef COLLECTOR_KNOWN_WORK_H
#define COLLECTOR_KNOWN_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct known_area;

struct known_work {
	const char *name;
	void (*run)(struct known_area *area, const struct known_work *work);
	/* Copies: pieces of this size within the first `span_bytes` of two buffers, `bytes` in all. */
	size_t piece_bytes, span_bytes, bytes;
	/* True if that cache has all data, so that no read misses it. If neither has any, each line read is a miss. */
	bool in_l1d, in_llc;
	/* True if the work only computes. */
	bool computes;
};

extern const struct known_work known_works[];
extern const size_t known_work_count;

/* Allocate memory that is at least twice as large as the last-level cache. Return NULL if there is too little. */
struct known_area *known_area__new(size_t llc_bytes);
/* Bring the caches into the state in which the work begins. */
void known_work__prepare(const struct known_work *work, struct known_area *area);
/* Return the number of lines that the work reads, in the caches or not. */
uint64_t known_work__lines(const struct known_work *work, const struct known_area *area);
/*
 * Return the count of the event named `event` (perf's name) if it counts what its name says: each line read that a
 * cache lacks is one miss. Return -1 if the count is not known.
 */
int64_t known_work__expect(const struct known_work *work, const struct known_area *area, const char *event);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_HISTOGRAM_H
#define TRAFFIC_HISTOGRAM_H

#include <stdint.h>

/*
 * A log-linear histogram of nanoseconds. Each value below 32 has a separate bucket. From 32 on, every power of two is divided
 * into 32 equal buckets, so the width of a bucket is at most 1/32 of its lower bound. A quantile is the middle of its
 * bucket, so its relative error is at most 1/64 (1.6 %). Values of 2^40 ns (18 minutes) and more share the last bucket.
 * Minimum, maximum and sum are exact.
 */
#define HISTOGRAM_SUB_BITS 5
#define HISTOGRAM_SUB (1u << HISTOGRAM_SUB_BITS)
#define HISTOGRAM_MAX_BITS 40
#define HISTOGRAM_BUCKETS ((HISTOGRAM_MAX_BITS - HISTOGRAM_SUB_BITS + 1) * HISTOGRAM_SUB)

struct histogram {
	uint64_t count;
	uint64_t sum;
	uint64_t min;		/* smallest value; undefined while count is 0 */
	uint64_t max;
	uint64_t buckets[HISTOGRAM_BUCKETS];
};

unsigned int histogram__index(uint64_t value);
/* Bounds of a bucket: it counts values with low <= value < high. */
uint64_t histogram__low(unsigned int index);
uint64_t histogram__high(unsigned int index);

void histogram__add(struct histogram *histogram, uint64_t value);
void histogram__merge(struct histogram *into, const struct histogram *from);
/* Return the quantile for `fraction` (0 to 1), or 0 for an empty histogram. */
uint64_t histogram__quantile(const struct histogram *histogram, double fraction);

#endif

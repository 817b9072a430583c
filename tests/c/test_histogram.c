// SPDX-License-Identifier: GPL-2.0-only
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "histogram.h"

/* Return a value of random magnitude, up to 2^39. */
static uint64_t random_value(uint64_t *state)
{
	return next_random(state) >> (25 + next_random(state) % 39);
}

TEST("histogram: every value lies in its bucket")
{
	uint64_t state = 1;

	for (int i = 0; i < 200000; i++) {
		uint64_t value = i < 5000 ? (uint64_t)i : random_value(&state);
		unsigned int index = histogram__index(value);

		CHECK(index < HISTOGRAM_BUCKETS);
		CHECK(histogram__low(index) <= value);
		CHECK(value < histogram__high(index));
	}
}

TEST("histogram: buckets are seamless and narrow")
{
	for (unsigned int i = 0; i + 1 < HISTOGRAM_BUCKETS; i++) {
		uint64_t low = histogram__low(i), high = histogram__high(i);

		CHECK_EQUAL(high, histogram__low(i + 1));
		CHECK_EQUAL(histogram__index(low), i);
		CHECK_EQUAL(histogram__index(high - 1), i);
		CHECK(high - low == 1 || (high - low) * HISTOGRAM_SUB <= low);
	}
	CHECK_EQUAL(histogram__high(HISTOGRAM_BUCKETS - 1), 1ull << HISTOGRAM_MAX_BITS);
}

static int compare(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

TEST("histogram: quantiles keep the promised error")
{
	static const double fractions[] = { 0, 0.01, 0.5, 0.9, 0.99, 0.999, 1 };
	static uint64_t values[4001];
	uint64_t state = 7;

	for (int round = 0; round < 50; round++) {
		struct histogram histogram = { 0 };
		size_t count = 1 + next_random(&state) % 4001;

		for (size_t i = 0; i < count; i++) {
			values[i] = random_value(&state);
			histogram__add(&histogram, values[i]);
		}
		qsort(values, count, sizeof(*values), compare);
		CHECK_EQUAL(histogram.count, count);
		CHECK_EQUAL(histogram.min, values[0]);
		CHECK_EQUAL(histogram.max, values[count - 1]);
		for (size_t i = 0; i < sizeof(fractions) / sizeof(*fractions); i++) {
			size_t rank = ceil(fractions[i] * count);
			double exact = values[rank ? rank - 1 : 0];
			double found = histogram__quantile(&histogram, fractions[i]);

			CHECK(fabs(found - exact) <= exact / (2 * HISTOGRAM_SUB) + 0.5);
		}
	}
}

TEST("histogram: merging is adding to one")
{
	uint64_t state = 3;

	for (int round = 0; round < 50; round++) {
		struct histogram all = { 0 }, merged = { 0 }, parts[3] = { { 0 } };

		for (int i = 0; i < 300; i++) {
			uint64_t value = random_value(&state);

			histogram__add(&all, value);
			histogram__add(&parts[next_random(&state) % (round % 3 + 1)], value);
		}
		for (int i = 0; i < 3; i++)
			histogram__merge(&merged, &parts[i]);
		CHECK(!memcmp(&all, &merged, sizeof(all)));
	}
}

TEST("histogram: nothing, and too much")
{
	struct histogram histogram = { 0 };

	CHECK_EQUAL(histogram__quantile(&histogram, 0.5), 0);
	histogram__add(&histogram, UINT64_MAX);
	CHECK_EQUAL(histogram.buckets[HISTOGRAM_BUCKETS - 1], 1);
	CHECK_EQUAL(histogram.max, UINT64_MAX);
}

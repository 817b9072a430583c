// SPDX-License-Identifier: GPL-2.0-only
#include <math.h>

#include "histogram.h"

unsigned int histogram__index(uint64_t value)
{
	unsigned int exponent;

	if (value >> HISTOGRAM_MAX_BITS)
		return HISTOGRAM_BUCKETS - 1;
	if (value < HISTOGRAM_SUB)
		return value;
	exponent = 63 - __builtin_clzll(value) - HISTOGRAM_SUB_BITS;
	return (exponent << HISTOGRAM_SUB_BITS) + (value >> exponent);
}

uint64_t histogram__low(unsigned int index)
{
	unsigned int exponent;

	if (index < 2 * HISTOGRAM_SUB)
		return index;
	exponent = (index >> HISTOGRAM_SUB_BITS) - 1;
	return (uint64_t)(HISTOGRAM_SUB + (index & (HISTOGRAM_SUB - 1))) << exponent;
}

uint64_t histogram__high(unsigned int index)
{
	return histogram__low(index + 1);
}

void histogram__add(struct histogram *histogram, uint64_t value)
{
	if (!histogram->count || value < histogram->min)
		histogram->min = value;
	if (value > histogram->max)
		histogram->max = value;
	histogram->count++;
	histogram->sum += value;
	histogram->buckets[histogram__index(value)]++;
}

void histogram__merge(struct histogram *into, const struct histogram *from)
{
	if (!from->count)
		return;
	if (!into->count || from->min < into->min)
		into->min = from->min;
	if (from->max > into->max)
		into->max = from->max;
	into->count += from->count;
	into->sum += from->sum;
	for (unsigned int i = 0; i < HISTOGRAM_BUCKETS; i++)
		into->buckets[i] += from->buckets[i];
}

uint64_t histogram__quantile(const struct histogram *histogram, double fraction)
{
	uint64_t rank = ceil(fraction * histogram->count);
	uint64_t seen = 0;
	uint64_t middle;
	unsigned int i;

	if (!histogram->count)
		return 0;
	if (rank < 1)
		rank = 1;
	for (i = 0; i < HISTOGRAM_BUCKETS - 1; i++) {
		seen += histogram->buckets[i];
		if (seen >= rank)
			break;
	}
	middle = histogram__low(i) + (histogram__high(i) - histogram__low(i)) / 2;
	if (middle < histogram->min)
		return histogram->min;
	return middle > histogram->max ? histogram->max : middle;
}

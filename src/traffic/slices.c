// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "slices.h"

/* Make slice `number` exist, with all slices between it and the others. */
static int slices__reach(struct slices *slices, uint64_t number)
{
	size_t before = 0, needed;
	uint64_t *grown;

	if (!slices->count)
		slices->first = number;
	if (number < slices->first)
		before = slices->first - number;
	else if (number - slices->first < slices->count)
		return 0;
	needed = before ? slices->count + before : number - slices->first + 1;
	if (needed > slices->capacity) {
		size_t capacity = slices->capacity ? slices->capacity : 1024;

		while (capacity < needed)
			capacity *= 2;
		grown = realloc(slices->bytes, capacity * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		slices->bytes = grown;
		slices->capacity = capacity;
	}
	if (before) {
		memmove(slices->bytes + before, slices->bytes, slices->count * sizeof(*slices->bytes));
		memset(slices->bytes, 0, before * sizeof(*slices->bytes));
		slices->first = number;
	} else {
		memset(slices->bytes + slices->count, 0,
		       (needed - slices->count) * sizeof(*slices->bytes));
	}
	slices->count = needed;
	return 0;
}

int slices__place(struct slices *slices, uint64_t total, uint64_t now_ns)
{
	uint64_t number = now_ns / SLICE_NS;
	int err = slices__reach(slices, number);

	if (err)
		return err;
	slices->bytes[number - slices->first] += total - slices->placed;
	slices->placed = total;
	return 0;
}

int slices__merge(struct slices *into, const struct slices *from)
{
	int err;

	if (!from->count)
		return 0;
	err = slices__reach(into, from->first);
	if (!err)
		err = slices__reach(into, from->first + from->count - 1);
	if (err)
		return err;
	for (size_t i = 0; i < from->count; i++)
		into->bytes[from->first - into->first + i] += from->bytes[i];
	into->placed += from->placed;
	return 0;
}

void slices__close(struct slices *slices)
{
	free(slices->bytes);
	memset(slices, 0, sizeof(*slices));
}

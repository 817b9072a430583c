// SPDX-License-Identifier: GPL-2.0-only
#include <endian.h>
#include <string.h>

#include "pattern.h"

#define WORD_BYTES sizeof(uint64_t)
#define WORD_STEP 0x9e3779b97f4a7c15ull
/* Number of words that are compared without a branch. */
#define BLOCK_WORDS 64

/* Return the finaliser of splitmix64 for a number: the words of consecutive generations then have no bytes in common. */
static uint64_t mix(uint64_t generation)
{
	uint64_t x = generation + WORD_STEP;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static uint64_t word_at(uint64_t base, size_t offset)
{
	return htole64(base + offset / WORD_BYTES * WORD_STEP);
}

void pattern__write(void *to, size_t length, uint64_t generation, size_t offset)
{
	uint64_t base = mix(generation);
	unsigned char *bytes = to;

	while (length) {
		size_t skip = offset % WORD_BYTES;
		size_t part = WORD_BYTES - skip < length ? WORD_BYTES - skip : length;
		uint64_t word = word_at(base, offset);

		if (part == WORD_BYTES)
			memcpy(bytes, &word, WORD_BYTES);
		else
			memcpy(bytes, (unsigned char *)&word + skip, part);
		bytes += part;
		offset += part;
		length -= part;
	}
}

static uint64_t count_wrong_slowly(const unsigned char *from, size_t length, uint64_t base,
				   size_t offset, size_t *first, uint64_t wrong)
{
	for (size_t i = 0; i < length; i++) {
		uint64_t word = word_at(base, offset + i);

		if (from[i] == ((unsigned char *)&word)[(offset + i) % WORD_BYTES])
			continue;
		if (!wrong++)
			*first = offset + i;
	}
	return wrong;
}

uint64_t pattern__count_wrong(const void *from, size_t length, uint64_t generation, size_t offset,
			      size_t *first)
{
	const size_t block_bytes = BLOCK_WORDS * WORD_BYTES;
	uint64_t base = mix(generation);
	const unsigned char *bytes = from;
	uint64_t wrong = 0;

	while (length) {
		size_t part = (WORD_BYTES - offset % WORD_BYTES) % WORD_BYTES;

		if (!part && length >= block_bytes) {
			uint64_t expected = base + offset / WORD_BYTES * WORD_STEP;
			uint64_t difference = 0;

			for (size_t i = 0; i < BLOCK_WORDS; i++) {
				uint64_t got;

				memcpy(&got, bytes + i * WORD_BYTES, WORD_BYTES);
				difference |= le64toh(got) ^ (expected + i * WORD_STEP);
			}
			part = block_bytes;
			if (difference)
				wrong = count_wrong_slowly(bytes, part, base, offset, first, wrong);
		} else {
			if (!part || part > length)
				part = length;
			wrong = count_wrong_slowly(bytes, part, base, offset, first, wrong);
		}
		bytes += part;
		offset += part;
		length -= part;
	}
	return wrong;
}

void stream_check__feed(struct stream_check *check, const void *from, size_t length)
{
	const unsigned char *bytes = from;

	while (length) {
		uint64_t generation = check->slots ? check->sequence % check->slots : check->sequence;
		size_t left = check->size_bytes - check->offset;
		size_t part = left < length ? left : length;
		size_t first = 0;
		uint64_t wrong = pattern__count_wrong(bytes, part, generation, check->offset, &first);

		if (wrong && !check->wrong_bytes)
			check->first_wrong_offset = check->sequence * check->size_bytes + first;
		check->wrong_bytes += wrong;
		check->checked_bytes += part;
		check->offset += part;
		if (check->offset == check->size_bytes) {
			check->offset = 0;
			check->sequence++;
		}
		bytes += part;
		length -= part;
	}
}

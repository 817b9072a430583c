// SPDX-License-Identifier: GPL-2.0-only
#include <string.h>

#include "check.h"
#include "pattern.h"

#define STREAM_BYTES 20000

static unsigned char stream[STREAM_BYTES];

/* Write messages of `size` bytes. Their generation is the sequence number, modulo `slots` unless that is 0. */
static void write_stream(size_t size, uint64_t slots)
{
	for (size_t offset = 0, sequence = 0; offset < STREAM_BYTES; offset += size, sequence++) {
		size_t left = STREAM_BYTES - offset;

		pattern__write(stream + offset, left < size ? left : size,
			       slots ? sequence % slots : sequence, 0);
	}
}

TEST("pattern: a message may be written in pieces")
{
	unsigned char whole[1000], pieces[1000];
	uint64_t state = 9;

	for (int round = 0; round < 500; round++) {
		size_t offset = 0;

		pattern__write(whole, sizeof(whole), round, 0);
		while (offset < sizeof(pieces)) {
			size_t part = 1 + next_random(&state) % 40;

			if (part > sizeof(pieces) - offset)
				part = sizeof(pieces) - offset;
			pattern__write(pieces + offset, part, round, offset);
			offset += part;
		}
		CHECK(!memcmp(whole, pieces, sizeof(whole)));
	}
}

TEST("pattern: a right stream passes however it is cut")
{
	static const size_t sizes[] = { 1, 7, 8, 1000, 1024, 4097, 16384 };
	uint64_t state = 11;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (uint64_t slots = 0; slots < 5; slots += 4)
			for (int round = 0; round < 20; round++) {
				struct stream_check check = { .size_bytes = sizes[i], .slots = slots };
				size_t at = 0;

				write_stream(sizes[i], slots);
				while (at < STREAM_BYTES) {
					size_t part = 1 + next_random(&state) % 3000;

					if (part > STREAM_BYTES - at)
						part = STREAM_BYTES - at;
					stream_check__feed(&check, stream + at, part);
					at += part;
				}
				CHECK_EQUAL(check.wrong_bytes, 0);
				CHECK_EQUAL(check.checked_bytes, STREAM_BYTES);
			}
}

TEST("pattern: one flipped byte is found wherever it is")
{
	write_stream(4097, 0);
	for (size_t at = 0; at < STREAM_BYTES; at++) {
		struct stream_check check = { .size_bytes = 4097 };

		stream[at] ^= 1 << at % 8;
		stream_check__feed(&check, stream, STREAM_BYTES / 3);
		stream_check__feed(&check, stream + STREAM_BYTES / 3, STREAM_BYTES - STREAM_BYTES / 3);
		stream[at] ^= 1 << at % 8;
		CHECK_EQUAL(check.wrong_bytes, 1);
		CHECK_EQUAL(check.first_wrong_offset, at);
	}
}

TEST("pattern: a stale or shifted message shows")
{
	struct stream_check check = { .size_bytes = 1000 };

	/* A stale message has the content of an earlier turn of the ring. */
	write_stream(1000, 0);
	pattern__write(stream + 5000, 1000, 1, 0);
	stream_check__feed(&check, stream, STREAM_BYTES);
	CHECK(check.wrong_bytes > 900 && check.wrong_bytes <= 1000);
	CHECK(check.first_wrong_offset >= 5000 && check.first_wrong_offset < 5010);

	/* After a lost byte, nearly all later bytes are wrong. */
	check = (struct stream_check){ .size_bytes = 1000 };
	write_stream(1000, 0);
	stream_check__feed(&check, stream, 3000);
	stream_check__feed(&check, stream + 3001, STREAM_BYTES - 3001);
	CHECK(check.wrong_bytes > (STREAM_BYTES - 3001) * 9 / 10);
}

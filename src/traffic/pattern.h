/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_PATTERN_H
#define TRAFFIC_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What --verify sends: 64-bit words that depend on the generation of a message and on the place in
 * it. A lost, repeated, swapped or stale piece shows, whatever its length. Word i of generation g is
 * mix(g) + i * odd: one addition per word, so checking runs at the speed of memory.
 */
void pattern__write(void *to, size_t length, uint64_t generation, size_t offset);

/* Compare `length` bytes that stand at `offset` of their message; `*first` is set when any is wrong. */
uint64_t pattern__count_wrong(const void *from, size_t length, uint64_t generation, size_t offset,
			      size_t *first);

/*
 * The reassembled stream of one connection. A message that the application rewrites each time
 * carries its sequence number as generation; otherwise a slot of the ring keeps its content, and
 * the generation is the slot number.
 */
struct stream_check {
	size_t size_bytes;
	uint64_t slots;			/* 0: every message is rewritten */
	uint64_t sequence;
	size_t offset;			/* in the message that is arriving */
	uint64_t checked_bytes;
	uint64_t wrong_bytes;
	uint64_t first_wrong_offset;	/* in the stream; meaningless while wrong_bytes is 0 */
};

void stream_check__feed(struct stream_check *check, const void *from, size_t length);

#endif

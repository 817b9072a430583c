/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_PATTERN_H
#define TRAFFIC_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Write the pattern of --verify: 64-bit words that depend on the generation of a message and on the offset in the message. The
 * receiver detects lost, repeated, swapped and stale pieces of any length. Word i of generation g is mix(g) + i * odd
 * constant: one addition per word, so the check runs at memory speed.
 */
void pattern__write(void *to, size_t length, uint64_t generation, size_t offset);

/*
 * Compare `length` bytes at `offset` of their message with the pattern. Return the number of wrong bytes. If a byte is wrong,
 * set `*first` to the offset of the first wrong byte in the message.
 */
uint64_t pattern__count_wrong(const void *from, size_t length, uint64_t generation, size_t offset,
			      size_t *first);

/*
 * Check of the byte stream of one connection. If the sender rewrites each message (--touch), the generation of a message is
 * its sequence number. Otherwise a slot of the ring keeps its content, and the generation is the slot number.
 */
struct stream_check {
	size_t size_bytes;
	uint64_t slots;			/* messages in the sender's ring; 0: every message is rewritten */
	uint64_t sequence;		/* number of the message that is arriving */
	size_t offset;			/* bytes of the arriving message that have arrived */
	uint64_t checked_bytes;
	uint64_t wrong_bytes;
	uint64_t first_wrong_offset;	/* stream offset of the first wrong byte; undefined while wrong_bytes is 0 */
};

void stream_check__feed(struct stream_check *check, const void *from, size_t length);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_SLICES_H
#define TRAFFIC_SLICES_H

#include <stddef.h>
#include <stdint.h>

#include "clock.h"

/*
 * Bytes per 100 ms of CLOCK_MONOTONIC, one series per thread, aligned to absolute multiples of
 * 100 ms so that the series of all threads and of both sides add up.
 *
 * Reading the clock for each message would cost more than the slices are worth at small sizes.
 * So bytes are placed late, all at once, into the slice of the moment when the clock is read anyway
 * (a timed message), or after 64 messages or 256 KiB, whichever comes first, and at every pause.
 * The sum is exact; a slice border is off by at most that much.
 */
#define SLICE_NS (100 * NSEC_PER_MSEC)
#define SLICE_PLACE_BYTES (256u << 10)
#define SLICE_PLACE_MESSAGES 64u

struct slices {
	uint64_t first;		/* number of the first slice: its start is first * SLICE_NS */
	size_t count;
	size_t capacity;
	uint64_t *bytes;
	uint64_t placed;	/* bytes placed so far */
};

/* Put what `total` has grown since the last call into the slice of `now_ns`. 0 or -ENOMEM. */
int slices__place(struct slices *slices, uint64_t total, uint64_t now_ns);
/* Add every slice of `from` to `into`. 0 or -ENOMEM. */
int slices__merge(struct slices *into, const struct slices *from);
void slices__close(struct slices *slices);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/* bursts.h - arms a set of events in short bursts at random times, from a thread of its own. */
#ifndef COLLECTOR_BURSTS_H
#define COLLECTOR_BURSTS_H

#include <stdint.h>

#include "abi.h"
#include "events.h"

struct bursts;

/* How many samples of one side fell into a burst: their spread says what the total is worth. */
struct burst_counts {
	double sum;
	double sum_of_squares;
};

/*
 * duty: the share of time that the events are armed, 0 < duty <= 1; with 1 they stay armed, which is one burst.
 * samples_of_side: counts of the sampler's program, read after each burst.
 */
int bursts__new(struct bursts **bursts, const struct events *events, double duty,
		const volatile __u64 *samples_of_side);
int bursts__start(struct bursts *bursts);
/* Disarms and waits for the thread. Returns 0 or the first -errno that arming met. */
int bursts__stop(struct bursts *bursts);
uint64_t bursts__enabled_ns(const struct bursts *bursts);
uint64_t bursts__armed_ns(const struct bursts *bursts);
unsigned int bursts__count(const struct bursts *bursts);
struct burst_counts bursts__counts(const struct bursts *bursts, enum side side);
void bursts__free(struct bursts *bursts);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * bursts.h - arms timers: of some sides all the time, of the others in short bursts, from a thread of its own.
 *
 * In bursts only one side at a time, because an armed timer changes what the other side does: it makes each sleep and
 * wake-up of its own side dearer, which the other pays for in wake-ups.
 */
#ifndef COLLECTOR_BURSTS_H
#define COLLECTOR_BURSTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "abi.h"
#include "events.h"

#define SIDES (SIDE_OTHER + 1)

struct bursts;

/* What the bursts of one side amount to so far. */
struct burst_totals {
	uint64_t armed_ns;
	/* CPU time of the side's threads while they were armed, by the timers' own clocks; read_err: it could not be read. */
	uint64_t cpu_ns;
	int read_err;
	unsigned int count;
	/* Samples in a burst: the spread over bursts says what the total is worth. */
	double samples;
	double samples_squared;
};

/*
 * duties: the share of time that the timers of each side are armed; 1 is all the time, which counts as one burst.
 * samples_of_side: counts of the sampler's program, read after each burst. others_armed: set while the timers of SIDE_OTHER
 * are.
 */
int bursts__new(struct bursts **bursts, const struct events events[SIDES], const double duties[SIDES],
		const volatile __u64 *samples_of_side, volatile __u32 *others_armed);
/* counted: whether the totals and the enabled time are of this segment, too. */
int bursts__start(struct bursts *bursts, bool counted);
/* Disarms and waits for the thread. Returns 0 or the first -errno that arming met. */
int bursts__stop(struct bursts *bursts);
uint64_t bursts__enabled_ns(const struct bursts *bursts);
struct burst_totals bursts__totals(const struct bursts *bursts, enum side side);
/* {side: {"period_ns", "armed_ns", "cpu_ns", "count", "samples", "samples_squared"}} */
json_t *bursts__json(const struct bursts *bursts, const __u64 periods_ns[SIDES]);
void bursts__free(struct bursts *bursts);

#endif

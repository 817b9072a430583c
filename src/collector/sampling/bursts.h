/* SPDX-License-Identifier: GPL-2.0 */
/*
 * bursts.h - arms timers: of some sides all the time, of the others in short bursts, from a thread of its own.
 *
 * In bursts only one side at a time, because an armed timer changes what the other side does: it makes each sleep and
 * wake-up of its own side dearer, which the other pays for in wake-ups.
 */
#ifndef COLLECTOR_BURSTS_H
#define COLLECTOR_BURSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"

#define SIDES (SIDE_OTHER + 1)

struct bursts;

/* What the bursts of one side amount to so far. */
struct burst_totals {
	uint64_t armed_ns;
	unsigned int count;
	/* Samples in a burst: the spread over bursts says what the total is worth. */
	double samples;
	double samples_squared;
};

/* Who has the timers. */
struct burst_timers {
	void *context;
	/* Before the first burst of a turn (on) and after its last: a turn is one burst or some that follow each other soon. */
	int (*prepare)(void *context, enum side side, bool on);
	/* Arms those of a side at *since_ns; 0 or -errno. What cannot be armed leaves the others armed. */
	int (*arm)(void *context, enum side side, uint64_t *since_ns);
	/* counted: whether the burst is of the totals. */
	int (*disarm)(void *context, enum side side, bool counted);
	/* How many samples each side has so far; read before and after each burst. */
	const volatile __u64 *samples_of_side;
	/* Is told before each turn of a side which group it belongs to (abi.h, BURST_GROUPS). */
	volatile __u32 *group_of_side;
};

/* duties: the share of time that the timers of each side are armed; 1 is all the time, which counts as one burst. */
int bursts__new(struct bursts **bursts, const struct burst_timers *timers, const double duties[SIDES]);
/* counted: whether the totals and the enabled time are of this segment, too. */
int bursts__start(struct bursts *bursts, bool counted);
/* Disarms and waits for the thread. Returns 0 or the first -errno that arming met. */
int bursts__stop(struct bursts *bursts);
uint64_t bursts__enabled_ns(const struct bursts *bursts);
struct burst_totals bursts__totals(const struct bursts *bursts, enum side side);
void bursts__free(struct bursts *bursts);

#endif

// SPDX-License-Identifier: GPL-2.0
#include "bursts.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "kernel/clock.h"
#include "resting_thread.h"

/* Short, so that there are many: processes take turns for milliseconds, and one burst sees one turn. */
#define BURST_NS 5000000ULL
/* Of SIDE_OTHER: softirq work on the time of others comes in clusters of milliseconds, and many short looks see more of them. */
#define SHORT_BURST_NS 500000ULL
/* They come in series: what these samples need at each packet is costly to attach, and slows each packet down while it is. */
#define SERIES 8
#define SERIES_REST_NS 2000000ULL

struct bursts {
	struct burst_timers timers;
	double duties[SIDES];
	/* How many turns each side is owed; the largest is next. */
	double owed[SIDES];
	/* Of the sides that take turns: the share of the time that their turns take, rests in a series included. */
	double total_share;
	/* How often any side has a turn, for each ns: the sum over duty / time armed in one turn. */
	double total_draw;
	struct resting_thread thread;
	/* Of a segment that the totals are about. */
	bool counted;
	int err;
	unsigned int seed;
	uint64_t began_ns;
	uint64_t enabled_ns;
	/* Of the sides that do not take turns. */
	__u64 samples_before[SIDES];
	struct burst_totals totals[SIDES];
};

static uint64_t burst_ns(enum side side)
{
	return side == SIDE_OTHER ? SHORT_BURST_NS : BURST_NS;
}

static int bursts_of_turn(enum side side)
{
	return side == SIDE_OTHER ? SERIES : 1;
}

static double draw_of(const struct bursts *bursts, enum side side)
{
	return bursts->duties[side] / (bursts_of_turn(side) * burst_ns(side));
}

static uint64_t turn_ns(enum side side)
{
	return bursts_of_turn(side) * burst_ns(side) + (bursts_of_turn(side) - 1) * SERIES_REST_NS;
}

int bursts__new(struct bursts **result, const struct burst_timers *timers, const double duties[SIDES])
{
	struct bursts *bursts = calloc(1, sizeof(*bursts));

	if (!bursts)
		return -ENOMEM;
	bursts->timers = *timers;
	for (int side = 0; side < SIDES; side++) {
		bursts->duties[side] = duties[side];
		if (duties[side] < 1) {
			bursts->total_draw += draw_of(bursts, side);
			bursts->total_share += draw_of(bursts, side) * turn_ns(side);
		}
	}
	bursts->seed = now_ns();
	*result = bursts;
	return 0;
}

/* Uniform between 0 and twice the mean, so that bursts keep no step with anything. */
static uint64_t random_ns(struct bursts *bursts, double mean_ns)
{
	return 2 * mean_ns * rand_r(&bursts->seed) / RAND_MAX;
}

/* Between two turns, so that each side is armed for its share of the time. */
static double mean_rest_ns(const struct bursts *bursts)
{
	return bursts->total_share < 1 ? (1 - bursts->total_share) / bursts->total_draw : 0;
}

/* Evenly, not by lot: of few turns each side has its part. They keep no step with anything, as the rests are random. */
static enum side next_side(struct bursts *bursts)
{
	enum side next = SIDE_OTHER;

	for (int side = 0; side < SIDES; side++) {
		if (bursts->duties[side] >= 1)
			continue;
		bursts->owed[side] += draw_of(bursts, side) / bursts->total_draw;
		if (bursts->duties[next] >= 1 || bursts->owed[side] > bursts->owed[next])
			next = side;
	}
	bursts->owed[next] -= 1;
	return next;
}

static void count_burst(struct bursts *bursts, enum side side, uint64_t armed_ns, double samples)
{
	struct burst_totals *totals = &bursts->totals[side];

	if (!bursts->counted)
		return;
	totals->armed_ns += armed_ns;
	totals->count++;
	totals->samples += samples;
	totals->samples_squared += samples * samples;
}

static int arm(struct bursts *bursts, enum side side, uint64_t *since_ns)
{
	return bursts->timers.arm(bursts->timers.context, side, since_ns);
}

static int disarm(struct bursts *bursts, enum side side)
{
	return bursts->timers.disarm(bursts->timers.context, side, bursts->counted);
}

static void note_error(struct bursts *bursts, int err)
{
	if (err && !bursts->err)
		bursts->err = err;
}

/* For how long the timers were armed. */
static uint64_t burst(struct bursts *bursts, enum side side)
{
	uint64_t armed_ns;
	/* Of those that could not all be armed some are. */
	int err = arm(bursts, side, &armed_ns);

	resting_thread__rest(&bursts->thread, burst_ns(side));
	/* Arming and disarming take the timers in the same order: each is armed from its turn to its turn. */
	armed_ns = now_ns() - armed_ns;
	note_error(bursts, disarm(bursts, side) ?: err);
	return armed_ns;
}

/* What a series sees is of one time: it counts as one burst. */
static void take_turn(struct bursts *bursts, enum side side)
{
	__u64 samples = bursts->timers.samples_of_side[side];
	uint64_t armed_ns = 0;

	bursts->timers.group_of_side[side] = 1 + bursts->timers.group_of_side[side] % BURST_GROUPS;
	note_error(bursts, bursts->timers.prepare(bursts->timers.context, side, true));
	for (int i = 0; i < bursts_of_turn(side); i++) {
		if (i && !resting_thread__rest(&bursts->thread, random_ns(bursts, SERIES_REST_NS)))
			break;
		armed_ns += burst(bursts, side);
	}
	note_error(bursts, bursts->timers.prepare(bursts->timers.context, side, false));
	count_burst(bursts, side, armed_ns, bursts->timers.samples_of_side[side] - samples);
}

static void take_turns(void *argument)
{
	struct sched_param priority = { .sched_priority = 1 };
	struct bursts *bursts = argument;

	/* SCHED_FIFO: a preemption between two ioctls would leave half of the timers armed. Without the right to it, one may. */
	sched_setscheduler(0, SCHED_FIFO, &priority);
	/* The default slack of 50 us would be 2 % of a burst. */
	prctl(PR_SET_TIMERSLACK, 1);
	while (resting_thread__rest(&bursts->thread, random_ns(bursts, mean_rest_ns(bursts))))
		take_turn(bursts, next_side(bursts));
}

static bool is_steady(const struct bursts *bursts, enum side side)
{
	return bursts->duties[side] >= 1;
}

int bursts__start(struct bursts *bursts, bool counted)
{
	uint64_t armed_ns;
	int err = 0;

	bursts->counted = counted;
	for (int side = 0; side < SIDES; side++) {
		bursts->samples_before[side] = bursts->timers.samples_of_side[side];
		if (is_steady(bursts, side))
			err = bursts->timers.prepare(bursts->timers.context, side, true) ?: arm(bursts, side, &armed_ns) ?: err;
	}
	bursts->began_ns = now_ns();
	if (err || !bursts->total_draw)
		return err;
	return resting_thread__start(&bursts->thread, take_turns, bursts);
}

int bursts__stop(struct bursts *bursts)
{
	uint64_t spent_ns = now_ns() - bursts->began_ns;
	int err = 0;

	for (int side = 0; side < SIDES; side++) {
		if (!is_steady(bursts, side))
			continue;
		err = disarm(bursts, side) ?: err;
		err = bursts->timers.prepare(bursts->timers.context, side, false) ?: err;
		count_burst(bursts, side, spent_ns, bursts->timers.samples_of_side[side] - bursts->samples_before[side]);
	}
	bursts->enabled_ns += bursts->counted ? spent_ns : 0;
	resting_thread__stop(&bursts->thread);
	return err ?: bursts->err;
}

uint64_t bursts__enabled_ns(const struct bursts *bursts)
{
	return bursts->enabled_ns;
}

struct burst_totals bursts__totals(const struct bursts *bursts, enum side side)
{
	return bursts->totals[side];
}

void bursts__free(struct bursts *bursts)
{
	if (!bursts)
		return;
	if (bursts->thread.running)
		bursts__stop(bursts);
	free(bursts);
}

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
#define SHORT_BURST_NS 1000000ULL

struct bursts {
	struct burst_timers timers;
	double duties[SIDES];
	/* Of the sides that take turns. */
	double total_duty;
	/* How often a side is chosen: its duty over the length of its bursts. */
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

int bursts__new(struct bursts **result, const struct burst_timers *timers, const double duties[SIDES])
{
	struct bursts *bursts = calloc(1, sizeof(*bursts));

	if (!bursts)
		return -ENOMEM;
	bursts->timers = *timers;
	for (int side = 0; side < SIDES; side++) {
		bursts->duties[side] = duties[side];
		if (duties[side] < 1) {
			bursts->total_duty += duties[side];
			bursts->total_draw += duties[side] / burst_ns(side);
		}
	}
	bursts->seed = now_ns();
	*result = bursts;
	return 0;
}

/* Uniform between 0 and twice the mean, so that bursts keep no step with anything. */
static uint64_t random_rest_ns(struct bursts *bursts)
{
	double mean_burst_ns = bursts->total_duty / bursts->total_draw;
	double mean_ns = mean_burst_ns * (1 - bursts->total_duty) / bursts->total_duty;

	return 2 * mean_ns * rand_r(&bursts->seed) / RAND_MAX;
}

static enum side random_side(struct bursts *bursts)
{
	double draw = bursts->total_draw * rand_r(&bursts->seed) / RAND_MAX;
	enum side chosen = SIDE_OTHER;

	for (int side = 0; side < SIDES; side++) {
		if (bursts->duties[side] >= 1)
			continue;
		chosen = side;
		if (draw < bursts->duties[side] / burst_ns(side))
			break;
		draw -= bursts->duties[side] / burst_ns(side);
	}
	return chosen;
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

static void burst(struct bursts *bursts, enum side side)
{
	__u64 samples = bursts->timers.samples_of_side[side];
	uint64_t armed_ns;
	/* Of those that could not all be armed some are. */
	int err = arm(bursts, side, &armed_ns);

	resting_thread__rest(&bursts->thread, burst_ns(side));
	/* Arming and disarming take the timers in the same order: each is armed from its turn to its turn. */
	armed_ns = now_ns() - armed_ns;
	err = disarm(bursts, side) ?: err;
	count_burst(bursts, side, armed_ns, bursts->timers.samples_of_side[side] - samples);
	if (err && !bursts->err)
		bursts->err = err;
}

static void take_turns(void *argument)
{
	struct sched_param priority = { .sched_priority = 1 };
	struct bursts *bursts = argument;

	/* SCHED_FIFO: a preemption between two ioctls would leave half of the timers armed. Without the right to it, one may. */
	sched_setscheduler(0, SCHED_FIFO, &priority);
	/* The default slack of 50 us would be 2 % of a burst. */
	prctl(PR_SET_TIMERSLACK, 1);
	while (resting_thread__rest(&bursts->thread, random_rest_ns(bursts)))
		burst(bursts, random_side(bursts));
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
			err = arm(bursts, side, &armed_ns) ?: err;
	}
	bursts->began_ns = now_ns();
	if (err || !bursts->total_duty)
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

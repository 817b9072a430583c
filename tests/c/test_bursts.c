#include <errno.h>
#include <stddef.h>
#include <time.h>

#include "../../src/collector/kernel/clock.h"
#include "../../src/collector/sampling/bursts.h"
#include "check.h"

#define MS 1000000L

static int armed[SIDES];
static int prepared[SIDES];
static int unprepared;

static int prepare(void *context, enum side side, bool on)
{
	(void)context;
	prepared[side] += on ? 1 : -1;
	return 0;
}

static int arm(void *context, enum side side, uint64_t *since_ns)
{
	(void)context;
	armed[side]++;
	unprepared += !prepared[side];
	*since_ns = now_ns();
	return 0;
}

static int disarm(void *context, enum side side, bool counted)
{
	armed[side]--;
	/* An error of what is said to be counted fails the stop. */
	return counted == *(bool *)context ? 0 : -EINVAL;
}

/* The thread arms nothing here: what is tested is that it and its master share nothing without the mutex (unit-threads). */
THREADS_TEST("bursts: they add up and end when told")
{
	const double duties[SIDES] = { [SIDE_SENDER] = 0.4, [SIDE_RECEIVER] = 0.4, [SIDE_OTHER] = 1 };
	__u64 samples[SIDES] = { 0 };
	__u32 groups[SIDES] = { 0 };
	struct bursts *bursts = NULL;
	bool counted = false;
	const struct burst_timers timers = { &counted, prepare, arm, disarm, samples, groups };
	uint64_t seen = 0;

	CHECK_EQUAL(bursts__new(&bursts, &timers, duties), 0);
	for (int segment = 0; segment < 6; segment++) {
		counted = segment % 2;
		CHECK_EQUAL(bursts__start(bursts, counted), 0);
		CHECK_EQUAL(armed[SIDE_OTHER], 1);
		nanosleep(&(struct timespec){ .tv_nsec = 25 * MS }, NULL);
		samples[SIDE_OTHER] += 10;
		CHECK_EQUAL(bursts__stop(bursts), 0);
		CHECK(!armed[SIDE_SENDER] && !armed[SIDE_RECEIVER] && !armed[SIDE_OTHER]);
		CHECK(!prepared[SIDE_SENDER] && !prepared[SIDE_RECEIVER] && !prepared[SIDE_OTHER]);
		/* What is not counted changes no total. */
		if (segment % 2)
			seen = bursts__totals(bursts, SIDE_SENDER).count + bursts__totals(bursts, SIDE_RECEIVER).count;
		else
			CHECK_EQUAL(bursts__totals(bursts, SIDE_SENDER).count +
				    bursts__totals(bursts, SIDE_RECEIVER).count, seen);
	}
	CHECK_EQUAL(bursts__totals(bursts, SIDE_OTHER).count, 3);
	CHECK_EQUAL(bursts__totals(bursts, SIDE_OTHER).samples, 30);
	CHECK(bursts__totals(bursts, SIDE_OTHER).armed_ns >= 3 * 25 * MS);
	CHECK(bursts__enabled_ns(bursts) >= 3 * 25 * MS);
	CHECK(seen > 0);
	/* One after the other, the sides that take turns; the one that is armed all the time is in no group. */
	CHECK(groups[SIDE_SENDER] >= 1 && groups[SIDE_SENDER] <= BURST_GROUPS);
	CHECK(groups[SIDE_RECEIVER] >= 1 && groups[SIDE_RECEIVER] <= BURST_GROUPS);
	CHECK_EQUAL(groups[SIDE_OTHER], 0);
	CHECK_EQUAL(unprepared, 0);
	bursts__free(bursts);
}

/* Stopped in the midst of a series, too: 30 segments of 8 ms, and a series takes 18 ms. */
THREADS_TEST("bursts: a series of them is prepared once, and whenever it ends it is over")
{
	const double duties[SIDES] = { [SIDE_OTHER] = 0.3 };
	__u64 samples[SIDES] = { 0 };
	__u32 groups[SIDES] = { 0 };
	struct bursts *bursts = NULL;
	bool counted = true;
	const struct burst_timers timers = { &counted, prepare, arm, disarm, samples, groups };

	unprepared = 0;
	CHECK_EQUAL(bursts__new(&bursts, &timers, duties), 0);
	for (int segment = 0; segment < 30; segment++) {
		CHECK_EQUAL(bursts__start(bursts, true), 0);
		nanosleep(&(struct timespec){ .tv_nsec = 8 * MS }, NULL);
		CHECK_EQUAL(bursts__stop(bursts), 0);
		CHECK(!armed[SIDE_OTHER] && !prepared[SIDE_OTHER]);
	}
	CHECK_EQUAL(unprepared, 0);
	CHECK(bursts__totals(bursts, SIDE_OTHER).count > 5);
	CHECK(bursts__totals(bursts, SIDE_OTHER).armed_ns < bursts__enabled_ns(bursts));
	bursts__free(bursts);
}

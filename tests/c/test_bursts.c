#include <stddef.h>
#include <time.h>

#include "../../src/collector/sampling/bursts.h"
#include "check.h"

#define MS 1000000L

/* The thread arms nothing here: what is tested is that it and its master share nothing without the mutex (unit-threads). */
THREADS_TEST("bursts: they add up and end when told")
{
	const double duties[SIDES] = { [SIDE_SENDER] = 0.4, [SIDE_RECEIVER] = 0.4, [SIDE_OTHER] = 1 };
	struct events nothing[SIDES] = { 0 };
	__u64 samples[SIDES] = { 0 };
	struct bursts *bursts = NULL;
	__u32 armed = 0;
	uint64_t seen = 0;

	CHECK_EQUAL(bursts__new(&bursts, nothing, duties, samples, &armed), 0);
	for (int segment = 0; segment < 6; segment++) {
		CHECK_EQUAL(bursts__start(bursts, segment % 2), 0);
		nanosleep(&(struct timespec){ .tv_nsec = 25 * MS }, NULL);
		samples[SIDE_OTHER] += 10;
		CHECK_EQUAL(bursts__stop(bursts), 0);
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
	bursts__free(bursts);
}

/* How fast a timer may be: what a machine can take, and not what a hypervisor left of it during one trial. */
#include <stddef.h>

#include "../../src/collector/sampling/timer_rate.h"
#include "check.h"

#define WANTED_HZ 10000

struct machine {
	/* What its interrupts take: faster timers lose the rest. */
	unsigned int most_hz;
	/* In all but one of so many trials the CPU is somebody else's for a fifth of the time. */
	int stolen_of;
	int trials;
	unsigned int fastest_hz;
};

static double try_on(void *context, unsigned int hz)
{
	struct machine *machine = context;
	double arrived = hz <= machine->most_hz ? 1 : (double)machine->most_hz / hz;

	if (hz > machine->fastest_hz)
		machine->fastest_hz = hz;
	return ++machine->trials % machine->stolen_of ? 0.8 * arrived : arrived;
}

static double never_opens(void *context, unsigned int hz)
{
	(void)hz;
	++*(int *)context;
	return -1;
}

TEST("sampler: stolen time makes no timer slower")
{
	struct machine quiet = { .most_hz = 100000, .stolen_of = 1 }, stolen = { .most_hz = 100000, .stolen_of = 4 };

	CHECK_EQUAL(timer_rate__highest(try_on, &quiet, WANTED_HZ), WANTED_HZ);
	/* 2,500, 5,000 and 10,000 Hz, each once. */
	CHECK_EQUAL(quiet.trials, 3);
	CHECK_EQUAL(timer_rate__highest(try_on, &stolen, WANTED_HZ), WANTED_HZ);
}

TEST("sampler: an emulated processor is not tried beyond what it takes")
{
	struct machine slow = { .most_hz = 3000, .stolen_of = 2 };
	int trials = 0;

	CHECK_EQUAL(timer_rate__highest(try_on, &slow, WANTED_HZ), 2500);
	CHECK_EQUAL(slow.fastest_hz, 5000);
	CHECK_EQUAL(timer_rate__highest(never_opens, &trials, WANTED_HZ), 1250);
	CHECK_EQUAL(trials, 1);
}

/* When the sampling timers of a guest fall due, and what their interrupts meet. */
#include <stddef.h>

#include "../../src/simulator/timers.h"
#include "check.h"

#define PERIOD_NS 1000
enum { SENDER = 1, BUSY };

static struct timers timers;

static void step(uint64_t task, enum timer_step step)
{
	timers__step(&timers, task, step, true, 0);
	timers__step(&timers, task, TIMER_CLOCK, false, 0);
}

/* An interrupt of `task` at `node`, whose handler takes 20 ns. */
static const struct fire *fire(uint64_t task, uint32_t node)
{
	timers__interrupt(&timers);
	timers__execute(&timers, task, 99, 20);
	timers__step(&timers, task, TIMER_FIRES, false, node);
	return timers.fire_count ? &timers.fires[timers.fire_count - 1] : NULL;
}

static void check_fire(const struct fire *fire, uint32_t due, uint32_t at, enum late why, int64_t late_ns)
{
	CHECK(fire);
	CHECK_EQUAL(fire->due_node, due);
	CHECK_EQUAL(fire->at_node, at);
	CHECK_EQUAL(fire->why, why);
	CHECK_EQUAL(fire->late_ns, late_ns);
}

TEST("simulator: what the interrupt of a sampling timer meets")
{
	timers__begin(&timers, PERIOD_NS);
	CHECK(!timers__execute(&timers, SENDER, 4, 500));
	/* Somebody else's timer, and a clock that is read for something else. */
	timers__step(&timers, SENDER, TIMER_STARTS, false, 0);
	timers__step(&timers, SENDER, TIMER_CLOCK, false, 0);
	CHECK_EQUAL(timers.count, 0);
	step(SENDER, TIMER_STARTS);
	CHECK(timers__execute(&timers, SENDER, 4, 900));
	timers__execute(&timers, SENDER, 5, 100);
	check_fire(fire(SENDER, 5), 5, 5, LATE_NOT, 0);
	timers__execute(&timers, SENDER, 6, PERIOD_NS - 20);
	check_fire(fire(SENDER, 6), 6, 6, LATE_NOT, 0);
	/* Where a function is interrupted a little later it is the same function. */
	timers__execute(&timers, SENDER, 6, PERIOD_NS - 20 + 500);
	check_fire(fire(SENDER, 6), 6, 6, LATE_NOT, 500);
	/* Interrupts are off from 7 to 8; the next period is counted from when this one was over. */
	timers__execute(&timers, SENDER, 7, PERIOD_NS - 20 + 500);
	check_fire(fire(SENDER, 8), 7, 8, LATE_MASKED, 500);
	timers__execute(&timers, SENDER, 9, PERIOD_NS - 520);
	check_fire(fire(SENDER, 9), 9, 9, LATE_NOT, 0);
	timers__close(&timers);
}

TEST("simulator: a sampling timer stands still without its task")
{
	timers__begin(&timers, PERIOD_NS);
	step(SENDER, TIMER_STARTS);
	timers__execute(&timers, SENDER, 4, 400);
	step(SENDER, TIMER_STOPS);
	CHECK(!timers__execute(&timers, BUSY, 5, 500));
	CHECK(!fire(BUSY, 5));
	step(SENDER, TIMER_STARTS);
	/* What comes long before it is due is that of the processor, which is nobody's own. */
	CHECK(!fire(SENDER, 6));
	timers__execute(&timers, SENDER, 6, 580);
	check_fire(fire(SENDER, 6), 6, 6, LATE_NOT, 0);
	/* Over in the middle of a switch: 10 us after the task runs again. */
	timers__execute(&timers, SENDER, 7, PERIOD_NS - 20);
	timers__execute(&timers, SENDER, 8, 50);
	step(SENDER, TIMER_STOPS);
	CHECK_EQUAL(timers.strange, 0);
	timers__execute(&timers, BUSY, 5, 5000);
	step(SENDER, TIMER_STARTS);
	timers__execute(&timers, SENDER, 9, TIMER_OVERDUE_NS + 16);
	check_fire(fire(SENDER, 9), 8, 9, LATE_SWITCH, 16);
	timers__execute(&timers, SENDER, 10, PERIOD_NS - 20);
	check_fire(fire(SENDER, 10), 10, 10, LATE_NOT, 0);
	timers__count(&timers);
	CHECK_EQUAL(timers.fire_count, 0);
	/* What nobody started cannot stop. */
	step(BUSY, TIMER_STOPS);
	step(SENDER, TIMER_STARTS);
	CHECK_EQUAL(timers.strange, 2);
	timers__close(&timers);
}

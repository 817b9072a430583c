// SPDX-License-Identifier: GPL-2.0
#include <stdlib.h>

#include "timers.h"

/*
 * The interrupt's own clock is set a little after the other one was read, and counts in steps; and each period ends some
 * 60 to 200 ns later than a period after the last, by what the guest takes for a nanosecond and by each time the timer is
 * stopped and started. Up to here an interrupt is on time, or tells anew when that is.
 */
#define ON_TIME_NS 100
#define NEAR_NS 400
/* No interrupt waits so long: it is not known when it was due. */
#define LOST_NS 20000

void timers__begin(struct timers *timers, int64_t period_ns)
{
	timers__close(timers);
	timers->period_ns = period_ns;
}

void timers__close(struct timers *timers)
{
	free(timers->fires);
	*timers = (struct timers){ 0 };
}

void timers__count(struct timers *timers)
{
	timers->fire_count = 0;
	timers->strange = 0;
}

void timers__interrupt(struct timers *timers)
{
	timers->interrupted_at = timers->now;
}

static struct timer *find(struct timers *timers, uint64_t task)
{
	for (unsigned int i = 0; i < timers->count; i++)
		if (timers->of[i].task == task)
			return &timers->of[i];
	return NULL;
}

static void start(struct timers *timers, uint64_t task)
{
	struct timer *timer = find(timers, task);

	if (!timer && timers->count < TIMERS_MAX) {
		timer = &timers->of[timers->count++];
		*timer = (struct timer){ .task = task, .due = timers->period_ns };
	}
	if (!timer || timer->armed) {
		timers->strange++;
		return;
	}
	if (timer->due < 0)
		timer->due = TIMER_OVERDUE_NS;
	else if (!timer->due)
		timer->due = timers->period_ns;
	timer->due += timers->now;
	timer->armed = true;
}

static void stop(struct timers *timers, uint64_t task)
{
	struct timer *timer = find(timers, task);

	if (!timer || !timer->armed) {
		timers->strange++;
		return;
	}
	timer->due -= timers->now;
	timer->overdue |= timer->due < 0;
	timer->armed = false;
}

static struct fire *add_fire(struct timers *timers)
{
	if (timers->fire_count == timers->fire_room) {
		size_t room = timers->fire_room ? 2 * timers->fire_room : 1024;
		struct fire *fires = realloc(timers->fires, room * sizeof(*fires));

		if (!fires) {
			timers->strange++;
			return NULL;
		}
		timers->fires = fires;
		timers->fire_room = room;
	}
	return &timers->fires[timers->fire_count++];
}

static enum late lateness(const struct timer *timer, int64_t late_ns, uint32_t at_node)
{
	if (timer->overdue)
		return LATE_SWITCH;
	/* Within a function a few instructions are nothing. */
	return late_ns <= ON_TIME_NS || timer->due_node == at_node ? LATE_NOT : LATE_MASKED;
}

/* When its next period is over: from when this one was, as far as that is known. */
static void forward(struct timers *timers, struct timer *timer, int64_t late_ns, enum late why)
{
	if (late_ns <= NEAR_NS || why == LATE_NOT) {
		if (why == LATE_NOT && late_ns <= NEAR_NS)
			timer->usual_ns += late_ns / 8;
		timer->due = timers->interrupted_at;
	}
	timer->due += timer->usual_ns;
	/* hrtimer_forward_now() */
	while (timer->due <= timers->now)
		timer->due += timers->period_ns;
	timer->passed = timer->overdue = false;
}

/* Its own timer, if that can be due: else it is that of the processor, which is nobody's. */
static void fire(struct timers *timers, uint64_t task, uint32_t at_node)
{
	struct timer *timer = find(timers, task);
	struct fire *kept;
	int64_t late_ns;
	enum late why;

	if (!timer || !timer->armed)
		return;
	late_ns = timers->interrupted_at - timer->due;
	if (late_ns < -NEAR_NS)
		return;
	if (late_ns > LOST_NS) {
		timers->strange++;
		timer->due_node = at_node;
		timer->overdue = false;
	}
	why = lateness(timer, late_ns, at_node);
	kept = add_fire(timers);
	if (kept)
		*kept = (struct fire){
			.due_node = why == LATE_NOT ? at_node : timer->due_node, .at_node = at_node,
			.late_ns = late_ns, .why = why,
		};
	forward(timers, timer, late_ns, why);
}

void timers__step(struct timers *timers, uint64_t task, enum timer_step step, bool sampler, uint32_t at_node)
{
	switch (step) {
	case TIMER_STARTS:
	case TIMER_STOPS:
		timers->pending = sampler ? step : TIMER_NO_STEP;
		break;
	case TIMER_CLOCK:
		if (timers->pending == TIMER_STARTS)
			start(timers, task);
		else if (timers->pending == TIMER_STOPS)
			stop(timers, task);
		timers->pending = TIMER_NO_STEP;
		break;
	case TIMER_FIRES:
		fire(timers, task, at_node);
		break;
	case TIMER_NO_STEP:
		break;
	}
}

bool timers__execute(struct timers *timers, uint64_t task, uint32_t node, unsigned int instructions)
{
	bool own = false;

	timers->now += instructions;
	for (unsigned int i = 0; i < timers->count; i++) {
		struct timer *timer = &timers->of[i];

		if (!timer->armed)
			continue;
		own |= timer->task == task;
		if (!timer->passed && timer->due < timers->now) {
			timer->passed = true;
			timer->due_node = node;
		}
	}
	return own;
}

/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SIMULATOR_TIMERS_H
#define SIMULATOR_TIMERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The sampling timers of a guest that samples itself (perf's cpu-clock): at which instruction each period is over, and
 * which instruction the interrupt then meets. For a guest of one CPU in which an instruction takes a nanosecond
 * (-icount shift=0).
 *
 * As kernel/events/core.c has it: a timer goes on while its task runs. perf_swevent_start_hrtimer() starts it for what
 * was left of its period when perf_swevent_cancel_hrtimer() stopped it; if the period was over by then, for 10,000 ns.
 * Both read the clock in ktime_get(). perf_swevent_hrtimer() is what the interrupt calls.
 */
#define TIMERS_MAX 8
#define TIMER_OVERDUE_NS 10000

enum timer_step {
	TIMER_NO_STEP,
	TIMER_STARTS,		/* hrtimer_start_range_ns() */
	TIMER_STOPS,		/* __hrtimer_get_remaining(), of which perf keeps what it says */
	TIMER_CLOCK,		/* ktime_get() */
	TIMER_FIRES,		/* perf_swevent_hrtimer() */
};

/* Why an interrupt came later than it was due. */
enum late { LATE_NOT, LATE_MASKED, LATE_SWITCH, LATE_CNT };

/* A period that was over, and its interrupt: the nodes of what ran. */
struct fire {
	uint32_t due_node, at_node;
	int64_t late_ns;
	enum late why;
};

struct timer {
	uint64_t task;			/* whichever number stands for it */
	int64_t due;			/* armed: when; else how long then */
	uint32_t due_node;
	bool armed;
	int64_t usual_ns;		/* that a period is longer by */
	bool passed;			/* it is due, and has not come */
	bool overdue;			/* it was stopped then */
};

struct timers {
	int64_t period_ns;		/* 0: nothing is followed */
	int64_t now;			/* instructions so far */
	int64_t interrupted_at;
	struct timer of[TIMERS_MAX];
	unsigned int count;
	enum timer_step pending;	/* until the clock is read */
	struct fire *fires;
	size_t fire_count, fire_room;
	uint64_t strange;		/* what these rules have no place for */
};

/* All that was known is outdated. */
void timers__begin(struct timers *timers, int64_t period_ns);
void timers__close(struct timers *timers);
/* What fired so far is of no interest. */
void timers__count(struct timers *timers);
/* An interrupt begins. */
void timers__interrupt(struct timers *timers);
/*
 * A function of this kind begins in a task that has a timer of its own; `sampler`: perf's timers have called it; at_node:
 * what was interrupted.
 */
void timers__step(struct timers *timers, uint64_t task, enum timer_step step, bool sampler, uint32_t at_node);
/* Instructions of a node are executed in a task: is its own timer armed? */
bool timers__execute(struct timers *timers, uint64_t task, uint32_t node, unsigned int instructions);

#endif

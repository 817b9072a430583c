// SPDX-License-Identifier: GPL-2.0-only
/* Simulated PMU with a given number of counters. Events take turns at each tick, as perf multiplexes them. */
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <sys/ioctl.h>

#include "../../src/collector/functions/counter_trial.h"
#include "../../src/collector/functions/kernel_work.h"
#include "check.h"

#define EVENTS 4
#define TICK_NS 4000000

static struct {
	struct cpu_event events[EVENTS];
	struct event_total totals[EVENTS];
	bool enabled[EVENTS];
	/* Events that can be opened but never count. */
	bool silent[EVENTS];
	int counters;
	int next;
} pmu;

static int index_of(const struct cpu_event *event)
{
	return event - pmu.events;
}

void cpu_event__control(const struct cpu_event *event, unsigned long request)
{
	pmu.enabled[index_of(event)] = event->works && request == PERF_EVENT_IOC_ENABLE;
}

struct event_total cpu_event__total(const struct cpu_event *event)
{
	return pmu.totals[index_of(event)];
}

struct event_total cpu_event__since(const struct cpu_event *event, struct event_total before)
{
	struct event_total now = cpu_event__total(event);

	return (struct event_total){ now.count - before.count, now.enabled_ns - before.enabled_ns,
				     now.running_ns - before.running_ns };
}

double cpu_event__running(struct event_total total)
{
	return total.enabled_ns ? (double)total.running_ns / total.enabled_ns : 0;
}

void cpu_event__close(struct cpu_event *event)
{
	event->works = false;
}

/* Simulate one tick of kernel work. */
int kernel_work(void)
{
	const struct timespec tick = { .tv_nsec = TICK_NS };
	int free_counters = pmu.counters;

	nanosleep(&tick, NULL);
	for (int i = 0; i < EVENTS; i++)
		pmu.totals[i].enabled_ns += pmu.enabled[i] ? TICK_NS : 0;
	for (int i = 0; i < EVENTS && free_counters; i++) {
		int turn = (pmu.next + i) % EVENTS;

		if (!pmu.enabled[turn])
			continue;
		free_counters--;
		pmu.totals[turn].running_ns += TICK_NS;
		pmu.totals[turn].count += pmu.silent[turn] ? 0 : 1000;
	}
	pmu.next = (pmu.next + 1) % EVENTS;
	return 0;
}

static void set_up(int counters)
{
	static const char *const names[EVENTS] = { "cycles", "instructions", "LLC-load-misses", "L1-dcache-load-misses" };

	memset(&pmu, 0, sizeof(pmu));
	pmu.counters = counters;
	for (int i = 0; i < EVENTS; i++) {
		strcpy(pmu.events[i].row.name, names[i]);
		pmu.events[i].works = true;
	}
}

TEST("counter_trial: a group that is too large says which fit")
{
	set_up(2);
	counter_trial__check(pmu.events, EVENTS);
	for (int i = 0; i < EVENTS; i++) {
		CHECK(pmu.events[i].works);
		CHECK(strstr(pmu.events[i].reason, "more events than PMU counters, so they take turns"));
		CHECK(strstr(pmu.events[i].reason, "use --count cycles,instructions"));
	}
}

TEST("counter_trial: one that never counts does not count as fitting")
{
	set_up(2);
	pmu.silent[1] = true;
	counter_trial__check(pmu.events, EVENTS);
	CHECK(!pmu.events[1].works);
	CHECK(strstr(pmu.events[1].reason, "counted nothing"));
	CHECK(strstr(pmu.events[0].reason, "use --count cycles,LLC-load-misses"));
}

TEST("counter_trial: a group that fits blames others if it has to share later")
{
	set_up(EVENTS);
	counter_trial__check(pmu.events, EVENTS);
	for (int i = 0; i < EVENTS; i++) {
		CHECK(pmu.events[i].works);
		CHECK(strstr(pmu.events[i].reason, "shared the PMU with the sampler, perf or other users"));
	}
}

TEST("counter_trial: without a counter it never got one")
{
	set_up(0);
	counter_trial__check(pmu.events, EVENTS);
	for (int i = 0; i < EVENTS; i++) {
		CHECK(!pmu.events[i].works);
		CHECK(strstr(pmu.events[i].reason, "never got a PMU counter"));
	}
}

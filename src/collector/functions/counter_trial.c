// SPDX-License-Identifier: GPL-2.0
#include "counter_trial.h"

#include <stdio.h>
#include <string.h>

#include "abi.h"
#include "kernel/clock.h"
#include "kernel_work.h"

/* Long enough that events which take turns on a PMU (once per timer tick) all get one. */
#define TRIAL_NS 60000000ULL

/* Lets the first `first` of the events count kernel work; totals of each are what this trial added. */
static int try_events(const struct cpu_event *events, int first, struct event_total *totals)
{
	uint64_t end_ns = now_ns() + TRIAL_NS;
	int err = 0;

	for (int i = 0; i < first; i++) {
		totals[i] = cpu_event__total(&events[i]);
		cpu_event__control(&events[i], PERF_EVENT_IOC_ENABLE);
	}
	do
		err = kernel_work();
	while (!err && now_ns() < end_ns);
	for (int i = 0; i < first; i++) {
		cpu_event__control(&events[i], PERF_EVENT_IOC_DISABLE);
		totals[i] = cpu_event__since(&events[i], totals[i]);
	}
	return err;
}

/* How many of the events, from the first, count all of the time when they count together. */
static int fitting(const struct cpu_event *events, int count)
{
	struct event_total totals[COUNTERS_MAX];

	for (int first = 1; first <= count; first++) {
		if (try_events(events, first, totals))
			return first - 1;
		for (int i = 0; i < first; i++)
			if (events[i].works && cpu_event__running(totals[i]) < RUNS_ALL_THE_TIME)
				return first - 1;
	}
	return count;
}

static void name_those_that_fit(const struct cpu_event *events, int count, char *text, size_t size)
{
	int fit = fitting(events, count);
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; i < fit; i++)
		if (events[i].works && used < size)
			used += snprintf(text + used, size - used, "%s%s", used ? "," : "", events[i].row.name);
}

/* An event can open and never count: arm64 takes raw cache events that its PMU does not have. */
void counter_trial__check(struct cpu_event *events, int count)
{
	struct event_total totals[COUNTERS_MAX];
	bool shared = false;
	char fit[128];
	int err = try_events(events, count, totals);

	for (int i = 0; i < count; i++) {
		struct cpu_event *event = &events[i];

		if (!event->works)
			continue;
		shared = shared || cpu_event__running(totals[i]) < RUNS_ALL_THE_TIME;
		/* The trial may have run where a partial one is not. */
		if (totals[i].count || event->partial)
			continue;
		snprintf(event->reason, sizeof(event->reason), "%s%s%s", totals[i].running_ns ?
			 "it opens, but counted nothing while the kernel copied memory" :
			 "it never got a counter of the PMU: other events use them all",
			 err ? "; the trial ended early: " : "", err ? strerror(-err) : "");
		cpu_event__close(event);
	}
	if (!shared) {
		/* Should they have to share later, then with others: the sampler, perf, the NMI watchdog. */
		for (int i = 0; i < count; i++)
			if (events[i].works)
				snprintf(events[i].reason, sizeof(events[i].reason),
					 "it shared the PMU with the sampler, with perf or with others");
		return;
	}
	name_those_that_fit(events, count, fit, sizeof(fit));
	for (int i = 0; i < count; i++)
		if (events[i].works)
			snprintf(events[i].reason, sizeof(events[i].reason),
				 "more events than the PMU has counters: they take turns; --count %s fit",
				 *fit ? fit : "with fewer");
}

// SPDX-License-Identifier: GPL-2.0-only
#include "counter_trial.h"

#include <stdio.h>
#include <string.h>

#include "abi.h"
#include "kernel/clock.h"
#include "kernel_work.h"

/* Length of the trial: long enough that all events that share a PMU in turns (one timer tick each) get their turn. */
#define TRIAL_NS 60000000ULL

/*
 * Let the first `first` events count while the kernel works. Store what each event counted in this trial in `totals`.
 */
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

/* Return the number of events, starting with the first, that count all the time when they count together. */
static int count_fitting_events(const struct cpu_event *events, int count)
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

static void list_fitting_events(const struct cpu_event *events, int count, char *text, size_t size)
{
	int fit = count_fitting_events(events, count);
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; i < fit; i++)
		if (events[i].works && used < size)
			used += snprintf(text + used, size - used, "%s%s", used ? "," : "", events[i].row.name);
}

/* An event can be opened without an error and yet never count: arm64 accepts raw cache events that its PMU lacks. */
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
		/* An event that some CPUs lack counts nothing if the trial ran on one of these CPUs. */
		if (totals[i].count || event->partial)
			continue;
		snprintf(event->reason, sizeof(event->reason), "%s%s%s", totals[i].running_ns ?
			 "the event opens, but counted nothing while the kernel copied memory" :
			 "the event never got a PMU counter: other events use them all",
			 err ? "; the trial ended early: " : "", err ? strerror(-err) : "");
		cpu_event__close(event);
	}
	if (!shared) {
		/*
		 * These events fit on the PMU together. If one of them has to share its counter later, other users of
		 * the PMU are the cause: the sampler, perf, the NMI watchdog.
		 */
		for (int i = 0; i < count; i++)
			if (events[i].works)
				snprintf(events[i].reason, sizeof(events[i].reason),
					 "the event shared the PMU with the sampler, perf or other users");
		return;
	}
	list_fitting_events(events, count, fit, sizeof(fit));
	for (int i = 0; i < count; i++)
		if (events[i].works)
			snprintf(events[i].reason, sizeof(events[i].reason),
				 "more events than PMU counters, so they take turns; use --count %s",
				 *fit ? fit : "with fewer events");
}

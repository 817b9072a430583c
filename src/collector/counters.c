// SPDX-License-Identifier: GPL-2.0
#include "counters.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "abi.h"
#include "cpu_event.h"
#include "kernel_work.h"
#include "read_cost.h"

#define USUAL "cycles,instructions,LLC-load-misses,L1-dcache-load-misses"
/* Long enough that events which take turns on a PMU (once per timer tick) all get one. */
#define TRIAL_NS 60000000LL
/* Running less than this part of the time, an event shares its counter with others. */
#define WHOLE 0.99

struct counters {
	int asked;
	int cpus;
	struct cpu_event events[COUNTERS_MAX];
	struct read_cost cost;
};

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Lets the first `first` of the events count kernel work; totals of each are what this trial added. */
static int try_events(const struct counters *counters, int first, struct event_total *totals)
{
	long long end_ns = now_ns() + TRIAL_NS;
	int err = 0;

	for (int i = 0; i < first; i++) {
		totals[i] = cpu_event__total(&counters->events[i]);
		cpu_event__control(&counters->events[i], PERF_EVENT_IOC_ENABLE);
	}
	do
		err = kernel_work();
	while (!err && now_ns() < end_ns);
	for (int i = 0; i < first; i++) {
		cpu_event__control(&counters->events[i], PERF_EVENT_IOC_DISABLE);
		totals[i] = cpu_event__since(&counters->events[i], totals[i]);
	}
	return err;
}

/* How many of the events, from the first, count all of the time when they count together. */
static int fitting(const struct counters *counters)
{
	struct event_total totals[COUNTERS_MAX];

	for (int first = 1; first <= counters->asked; first++) {
		if (try_events(counters, first, totals))
			return first - 1;
		for (int i = 0; i < first; i++)
			if (counters->events[i].works && cpu_event__running(totals[i]) < WHOLE)
				return first - 1;
	}
	return counters->asked;
}

static void name_those_that_fit(const struct counters *counters, char *text, size_t size)
{
	int fit = fitting(counters);
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; i < fit; i++)
		if (counters->events[i].works && used < size)
			used += snprintf(text + used, size - used, "%s%s", used ? "," : "", counters->events[i].row.name);
}

/* An event can open and never count: arm64 takes raw cache events that its PMU does not have. */
static void check_that_they_count(struct counters *counters)
{
	struct event_total totals[COUNTERS_MAX];
	bool shared = false;
	char fit[128];
	int err = try_events(counters, counters->asked, totals);

	for (int i = 0; i < counters->asked; i++) {
		struct cpu_event *event = &counters->events[i];

		if (!event->works)
			continue;
		shared = shared || cpu_event__running(totals[i]) < WHOLE;
		if (totals[i].count)
			continue;
		snprintf(event->reason, sizeof(event->reason), "%s%s%s", totals[i].running_ns ?
			 "it opens, but counted nothing while the kernel copied memory" :
			 "it never got a counter of the PMU: other events use them all",
			 err ? "; the trial ended early: " : "", err ? strerror(-err) : "");
		cpu_event__close(event);
	}
	if (!shared) {
		/* Should they have to share later, then with others: the sampler, perf, the NMI watchdog. */
		for (int i = 0; i < counters->asked; i++)
			if (counters->events[i].works)
				snprintf(counters->events[i].reason, sizeof(counters->events[i].reason),
					 "it shared the PMU with the sampler, with perf or with others");
		return;
	}
	name_those_that_fit(counters, fit, sizeof(fit));
	for (int i = 0; i < counters->asked; i++)
		if (counters->events[i].works)
			snprintf(counters->events[i].reason, sizeof(counters->events[i].reason),
				 "more events than the PMU has counters: they take turns; --count %s fit",
				 *fit ? fit : "with fewer");
}

bool counters__valid(const char *text)
{
	char list[256], *save = NULL, *name;
	struct event_row row;
	int count = 0;

	snprintf(list, sizeof(list), "%s", text);
	for (name = strtok_r(list, ",", &save); name; name = strtok_r(NULL, ",", &save))
		if (!cpu_event__find(name, &row) || ++count > COUNTERS_MAX)
			return false;
	return true;
}

static int open_list(struct counters *counters, const char *text)
{
	char list[256], *save = NULL, *name;

	snprintf(list, sizeof(list), "%s", text);
	for (name = strtok_r(list, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
		struct event_row row;
		int err = cpu_event__find(name, &row) ? 0 : -EINVAL;

		if (!err)
			err = cpu_event__open(&counters->events[counters->asked], &row, counters->cpus);
		if (err)
			return err;
		counters->asked++;
	}
	return 0;
}

int counters__new(struct counters **result, const char *list)
{
	struct counters *counters = calloc(1, sizeof(*counters));
	int err;

	if (!counters)
		return -ENOMEM;
	counters->cpus = libbpf_num_possible_cpus();
	err = open_list(counters, list ?: USUAL);
	if (!err && counters__count(counters))
		check_that_they_count(counters);
	if (err) {
		counters__free(counters);
		return err;
	}
	*result = counters;
	return 0;
}

int counters__count(const struct counters *counters)
{
	int works = 0;

	for (int i = 0; counters && i < counters->asked; i++)
		works += counters->events[i].works;
	return works;
}

void counters__prepare(const struct counters *counters, struct copyscope *skel, bool read_cost)
{
	int count = counters__count(counters);

	skel->rodata->counters_cnt = count;
	if (count)
		bpf_map__set_max_entries(skel->maps.counter_events, counters->cpus * COUNTERS_MAX);
	bpf_program__set_autoload(skel->progs.on_read_cost, count && read_cost);
}

int counters__install(const struct counters *counters, struct copyscope *skel)
{
	int slot = 0;

	for (int i = 0; counters && i < counters->asked; i++) {
		const struct cpu_event *event = &counters->events[i];

		if (!event->works)
			continue;
		for (int cpu = 0; cpu < counters->cpus; cpu++) {
			__u32 index = cpu * COUNTERS_MAX + slot;

			if (event->fds[cpu] >= 0 && bpf_map_update_elem(bpf_map__fd(skel->maps.counter_events), &index,
									&event->fds[cpu], BPF_ANY))
				return -errno;
		}
		slot++;
	}
	return 0;
}

void counters__switch(const struct counters *counters, bool on)
{
	for (int i = 0; counters && i < counters->asked; i++)
		cpu_event__control(&counters->events[i], on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE);
}

/* What was counted so far does not belong to the run. */
static void end_trial(struct counters *counters)
{
	for (int i = 0; i < counters->asked; i++)
		if (counters->events[i].works)
			counters->events[i].trial = cpu_event__total(&counters->events[i]);
}

void counters__measure_cost(struct counters *counters, struct copyscope *skel)
{
	if (!counters__count(counters))
		return;
	counters__switch(counters, true);
	read_cost__measure(&counters->cost, skel);
	counters__switch(counters, false);
	end_trial(counters);
}

json_t *counters__values_json(const struct counters *counters, const __u64 *values)
{
	json_t *object = json_object();

	for (int i = 0; counters && i < counters->asked; i++)
		if (counters->events[i].works)
			json_object_set_new(object, counters->events[i].row.name, json_integer(*values++));
	return object;
}

/* The part of the time that an event really counted: of this run, or of the trial as long as there was no run. */
static double share_of_time(const struct cpu_event *event)
{
	struct event_total run = cpu_event__since(event, event->trial);

	return cpu_event__running(run.enabled_ns ? run : event->trial);
}

json_t *counters__events_json(const struct counters *counters)
{
	json_t *array = json_array();

	for (int i = 0; counters && i < counters->asked; i++) {
		const struct cpu_event *event = &counters->events[i];
		double share = event->works ? share_of_time(event) : 0;
		bool scaled = event->works && share < WHOLE;

		json_array_append_new(array, json_pack("{s:s, s:s, s:s, s:s?, s:o}", "name", event->row.name,
			"unit", event->row.unit,
			"status", !event->works ? "unsupported" : scaled ? "scaled" : "counted",
			"reason", !event->works || scaled ? event->reason : NULL,
			"running", event->works ? json_real(share) : json_null()));
	}
	return array;
}

json_t *counters__cost_json(const struct counters *counters)
{
	if (!counters__count(counters) || !counters->cost.runs)
		return json_null();
	return read_cost__json(&counters->cost, counters__count(counters));
}

void counters__free(struct counters *counters)
{
	if (!counters)
		return;
	for (int i = 0; i < counters->asked; i++)
		cpu_event__close(&counters->events[i]);
	free(counters);
}

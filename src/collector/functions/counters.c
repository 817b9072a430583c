// SPDX-License-Identifier: GPL-2.0-only
#include "counters.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "abi.h"
#include "counter_trial.h"
#include "cpu_event.h"

/* The hooks themselves cause too many cycles, instructions and L1D misses (docs/reference/pmu.md). */
#define DEFAULT_EVENTS "LLC-load-misses"

/*
 * Number of runs that measure the cost of a reading. An odd number has a middle value. The 10th and the 22nd of 31
 * sorted values enclose the median with 95 % confidence (binomial, p = 1/2: ranks below 10 or above 22 have a
 * probability of 3 %).
 */
#define COST_RUNS 31
#define LOW_RANK 10
#define HIGH_RANK 22

/*
 * A reading that takes this many times the usual duration counts as disturbed. The factor allows for caches that a copy
 * has flushed.
 */
#define STOPPED_TIMES 10

/* Duration of one reading of the clock and the counters, measured by running the program on_read_cost; sorted. */
struct read_cost {
	/* 0: the cost could not be measured. */
	int runs;
	double look_ns[COST_RUNS];
};

struct counters {
	int requested;
	int cpus;
	struct cpu_event events[COUNTERS_MAX];
	struct read_cost cost;
};

bool counters__valid(const char *text)
{
	char list[256], *save = NULL, *name;
	struct event_row row;
	int count = 0;

	snprintf(list, sizeof(list), "%s", text);
	for (name = strtok_r(list, ",", &save); name; name = strtok_r(NULL, ",", &save))
		if (!pmu__find(name, &row) || ++count > COUNTERS_MAX)
			return false;
	return true;
}

static int open_list(struct counters *counters, const char *text)
{
	char list[256], *save = NULL, *name;

	snprintf(list, sizeof(list), "%s", text);
	for (name = strtok_r(list, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
		struct event_row row;
		int err = pmu__find(name, &row) ? 0 : -EINVAL;

		if (!err)
			err = cpu_event__open(&counters->events[counters->requested], &row, counters->cpus);
		if (err)
			return err;
		counters->requested++;
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
	err = open_list(counters, list ?: DEFAULT_EVENTS);
	if (!err && counters__count(counters))
		counter_trial__check(counters->events, counters->requested);
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

	for (int i = 0; counters && i < counters->requested; i++)
		works += counters->events[i].works;
	return works;
}

void counters__prepare(const struct counters *counters, struct copyscope *skel, bool read_cost)
{
	int count = counters__count(counters);

	skel->rodata->counters_cnt = count;
	if (count)
		bpf_map__set_max_entries(skel->maps.counter_events, counters->cpus * COUNTERS_MAX);
	bpf_program__set_autoload(skel->progs.on_read_cost, counters && read_cost);
}

int counters__install(const struct counters *counters, struct copyscope *skel)
{
	int slot = 0;

	for (int i = 0; counters && i < counters->requested; i++) {
		const struct cpu_event *event = &counters->events[i];

		if (!event->works)
			continue;
		for (int cpu = 0; cpu < counters->cpus; cpu++) {
			__u32 index = cpu * COUNTERS_MAX + slot;
			int fd = cpu_event__fd(event, cpu);

			if (fd >= 0 && bpf_map_update_elem(bpf_map__fd(skel->maps.counter_events), &index, &fd, BPF_ANY))
				return -errno;
		}
		slot++;
	}
	return 0;
}

void counters__switch(const struct counters *counters, bool on)
{
	for (int i = 0; counters && i < counters->requested; i++)
		cpu_event__control(&counters->events[i], on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE);
}

static int compare_doubles(const void *left, const void *right)
{
	double difference = *(const double *)left - *(const double *)right;

	return (difference > 0) - (difference < 0);
}

static void measure_cost(struct read_cost *cost, struct copyscope *skel)
{
	LIBBPF_OPTS(bpf_test_run_opts, options);

	cost->runs = 0;
	for (int run = 0; run < COST_RUNS; run++) {
		/* Raw tracepoint programs can be run from 5.10 on (commit 1b4d60ec162f). */
		if (bpf_prog_test_run_opts(bpf_program__fd(skel->progs.on_read_cost), &options) || options.retval)
			return;
		cost->look_ns[run] = (double)skel->bss->look_cost_ns / (2 * LOOKS);
	}
	qsort(cost->look_ns, COST_RUNS, sizeof(double), compare_doubles);
	cost->runs = COST_RUNS;
	skel->data->look_limit_ns = STOPPED_TIMES * cost->look_ns[COST_RUNS / 2];
}

/* Exclude the counts of the trial from the run. */
static void end_trial(struct counters *counters)
{
	for (int i = 0; i < counters->requested; i++)
		if (counters->events[i].works)
			counters->events[i].trial = cpu_event__total(&counters->events[i]);
}

void counters__measure_cost(struct counters *counters, struct copyscope *skel)
{
	if (!counters)
		return;
	counters__switch(counters, true);
	measure_cost(&counters->cost, skel);
	counters__switch(counters, false);
	end_trial(counters);
}

json_t *counters__values_json(const struct counters *counters, const __u64 *values)
{
	json_t *object = json_object();

	for (int i = 0; counters && i < counters->requested; i++)
		if (counters->events[i].works)
			json_object_set_new(object, counters->events[i].row.name, json_integer(*values++));
	return object;
}

/*
 * Return the fraction of the time for which an event really counted: in this run, or in the trial if there was no run
 * yet.
 */
static double share_of_time(const struct cpu_event *event)
{
	struct event_total run = cpu_event__since(event, event->trial);

	return cpu_event__running(run.enabled_ns ? run : event->trial);
}

static json_t *event_json(const struct cpu_event *event)
{
	double share = event->works ? share_of_time(event) : 0;
	bool scaled = event->works && share < RUNS_ALL_THE_TIME;
	const char *status = !event->works ? "unsupported" : event->partial ? "partial" : scaled ? "scaled" : "counted";
	const char *reason = event->partial ? event->covered.reason : event->reason;
	json_t *json = json_pack("{s:s, s:s, s:s, s:s?, s:o}", "name", event->row.name, "unit", event->row.unit,
				 "status", status, "reason", strcmp(status, "counted") ? reason : NULL,
				 "running", event->works ? json_real(share) : json_null());

	if (event->row.counts)
		json_object_set_new(json, "counts", json_string(event->row.counts));
	if (event->partial)
		json_object_set_new(json, "cpus", json_string(event->covered.cpus));
	return json;
}

json_t *counters__events_json(const struct counters *counters)
{
	json_t *array = json_array();

	for (int i = 0; counters && i < counters->requested; i++)
		json_array_append_new(array, event_json(&counters->events[i]));
	return array;
}

/* Return the median cost of a reading and its 95 % confidence interval as JSON. */
json_t *counters__cost_json(const struct counters *counters)
{
	const struct read_cost *cost = counters ? &counters->cost : NULL;

	if (!cost || !cost->runs)
		return json_null();
	return json_pack("{s:i, s:i, s:f, s:f, s:f}", "reads", cost->runs * 2 * LOOKS, "events", counters__count(counters),
			 "look_ns", cost->look_ns[COST_RUNS / 2], "low_ns", cost->look_ns[LOW_RANK - 1],
			 "high_ns", cost->look_ns[HIGH_RANK - 1]);
}

void counters__free(struct counters *counters)
{
	if (!counters)
		return;
	for (int i = 0; i < counters->requested; i++)
		cpu_event__close(&counters->events[i]);
	free(counters);
}

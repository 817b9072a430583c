// SPDX-License-Identifier: GPL-2.0
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
#include "hooks.h"

#define USUAL "cycles,instructions,LLC-load-misses,L1-dcache-load-misses"

/*
 * Odd, so that there is a middle one. Of 31 values in order, the 10th and the 22nd hold their median with 95 % (binomial,
 * p = 1/2: ranks below 10 or above 22 happen in 3 %).
 */
#define COST_RUNS 31
#define LOW_RANK 10
#define HIGH_RANK 22

/* A look that takes so many times the usual, with caches that a copy has emptied, is none. */
#define STOPPED_TIMES 10

/* Of the copies between two looks; 0 is none. */
static const unsigned int copy_sizes[] = { 0, LOOK_COPY_BYTES / 8, LOOK_COPY_BYTES };
#define COPY_SIZES (sizeof(copy_sizes) / sizeof(*copy_sizes))

/* What one look at the clock and the counters costs, measured by running the program on_read_cost; each sorted. */
struct read_cost {
	/* 0: it could not be measured. */
	int runs;
	/* The clock alone, and all that a look does. */
	double clock_ns[COST_RUNS];
	double look_ns[COST_RUNS];
	/* What the looks of a copy add to each counter that works, in the order of its place among them. */
	double added[COPY_SIZES][COUNTERS_MAX][COST_RUNS];
	/* And those of a hooked function that does nothing, where one could be hooked. */
	bool hooked;
	double nothing[COUNTERS_MAX][COST_RUNS];
	struct bpf_link *links[2];
};

struct counters {
	int asked;
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
		counter_trial__check(counters->events, counters->asked);
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

static int aim_at_nothing(struct bpf_program *program, enum bpf_attach_type type, bool load)
{
	int err = bpf_program__set_autoload(program, load);

	if (err || !load)
		return err;
	return bpf_program__set_type(program, BPF_PROG_TYPE_TRACING) ?: bpf_program__set_expected_attach_type(program, type) ?:
	       bpf_program__set_attach_target(program, 0, NOTHING);
}

int counters__prepare(const struct counters *counters, struct copyscope *skel, bool read_cost, bool fentry)
{
	int count = counters__count(counters);

	skel->rodata->counters_cnt = count;
	if (count)
		bpf_map__set_max_entries(skel->maps.counter_events, counters->cpus * COUNTERS_MAX);
	bpf_program__set_autoload(skel->progs.on_read_cost, counters && read_cost);
	fentry = fentry && read_cost && counters;
	return aim_at_nothing(skel->progs.on_nothing_enter, BPF_TRACE_FENTRY, fentry) ?:
	       aim_at_nothing(skel->progs.on_nothing_leave, BPF_TRACE_FEXIT, fentry);
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
	for (int i = 0; counters && i < counters->asked; i++)
		cpu_event__control(&counters->events[i], on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE);
}

static int by_size(const void *left, const void *right)
{
	double difference = *(const double *)left - *(const double *)right;

	return (difference > 0) - (difference < 0);
}

static void note_run(struct read_cost *cost, const struct copyscope *skel, size_t size, int run)
{
	for (int i = 0; i < COUNTERS_MAX; i++)
		cost->added[size][i][run] =
			(double)(__s64)(skel->bss->looked_counts[i] - skel->bss->plain_counts[i]) / LOOKS;
	if (copy_sizes[size])
		return;
	cost->clock_ns[run] = (double)skel->bss->clock_cost_ns / LOOKS;
	cost->look_ns[run] = (double)skel->bss->look_cost_ns / (2 * LOOKS);
}

static void measure_cost(struct read_cost *cost, struct copyscope *skel)
{
	LIBBPF_OPTS(bpf_test_run_opts, options);

	cost->runs = 0;
	for (size_t size = 0; size < COPY_SIZES; size++) {
		skel->bss->look_copy_bytes = copy_sizes[size];
		for (int run = 0; run < COST_RUNS; run++) {
			/* Raw tracepoint programs can be run since 5.10 (commit 1b4d60ec162f). */
			if (bpf_prog_test_run_opts(bpf_program__fd(skel->progs.on_read_cost), &options) || options.retval)
				return;
			note_run(cost, skel, size, run);
		}
		for (int i = 0; i < COUNTERS_MAX; i++)
			qsort(cost->added[size][i], COST_RUNS, sizeof(double), by_size);
	}
	qsort(cost->clock_ns, COST_RUNS, sizeof(double), by_size);
	qsort(cost->look_ns, COST_RUNS, sizeof(double), by_size);
	cost->runs = COST_RUNS;
	skel->data->look_limit_ns = STOPPED_TIMES * cost->look_ns[COST_RUNS / 2];
}

/* The way into a hooked function and out of it. Its hooks stay: to let go of them takes a grace period. */
static void measure_nothing(struct read_cost *cost, struct copyscope *skel)
{
	LIBBPF_OPTS(bpf_test_run_opts, options);

	if (!cost->runs || bpf_program__fd(skel->progs.on_nothing_enter) < 0)
		return;
	cost->links[0] = bpf_program__attach_trace(skel->progs.on_nothing_leave);
	cost->links[1] = cost->links[0] ? bpf_program__attach_trace(skel->progs.on_nothing_enter) : NULL;
	for (int run = 0; cost->links[1] && run < COST_RUNS; run++) {
		if (bpf_prog_test_run_opts(bpf_program__fd(skel->progs.on_nothing_enter), &options))
			return;
		for (int i = 0; i < COUNTERS_MAX; i++)
			cost->nothing[i][run] = skel->bss->nothing_counts[i];
	}
	for (int i = 0; i < COUNTERS_MAX; i++)
		qsort(cost->nothing[i], COST_RUNS, sizeof(double), by_size);
	cost->hooked = cost->links[1];
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
	if (!counters)
		return;
	counters__switch(counters, true);
	measure_cost(&counters->cost, skel);
	measure_nothing(&counters->cost, skel);
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

	for (int i = 0; counters && i < counters->asked; i++)
		json_array_append_new(array, event_json(&counters->events[i]));
	return array;
}

/* The medians and their 95 % intervals; `names` are those of the counters that work. */
static json_t *cost_json(const struct read_cost *cost, const char *const *names, int events)
{
	json_t *added = json_array();

	for (size_t size = 0; size < COPY_SIZES; size++)
		for (int i = 0; i < events; i++) {
			const double *sorted = cost->added[size][i];
			/* Without a copy both measure the looks alone: the copy's part comes on top of the dearer way. */
			double way = cost->hooked ? cost->nothing[i][COST_RUNS / 2] - cost->added[0][i][COST_RUNS / 2] : 0;

			json_array_append_new(added, json_pack("{s:s, s:i, s:f, s:f, s:f}", "name", names[i],
				"copy_bytes", copy_sizes[size], "count", way + sorted[COST_RUNS / 2],
				"low", way + sorted[LOW_RANK - 1], "high", way + sorted[HIGH_RANK - 1]));
		}
	return json_pack("{s:i, s:i, s:b, s:f, s:f, s:f, s:f, s:o}", "reads", cost->runs * 2 * LOOKS, "events", events,
			 "hooked", cost->hooked, "clock_ns", cost->clock_ns[COST_RUNS / 2], "look_ns", cost->look_ns[COST_RUNS / 2],
			 "low_ns", cost->look_ns[LOW_RANK - 1], "high_ns", cost->look_ns[HIGH_RANK - 1], "added", added);
}

json_t *counters__cost_json(const struct counters *counters)
{
	const char *names[COUNTERS_MAX];
	int count = 0;

	for (int i = 0; counters && i < counters->asked; i++)
		if (counters->events[i].works)
			names[count++] = counters->events[i].row.name;
	return counters && counters->cost.runs ? cost_json(&counters->cost, names, count) : json_null();
}

void counters__free(struct counters *counters)
{
	if (!counters)
		return;
	for (int i = 0; i < 2; i++)
		bpf_link__destroy(counters->cost.links[i]);
	for (int i = 0; i < counters->asked; i++)
		cpu_event__close(&counters->events[i]);
	free(counters);
}

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
#include "read_cost.h"

#define USUAL "cycles,instructions,LLC-load-misses,L1-dcache-load-misses"
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
	if (!counters)
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
		bool scaled = event->works && share < RUNS_ALL_THE_TIME;

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
	const char *names[COUNTERS_MAX];
	int count = 0;

	for (int i = 0; counters && i < counters->asked; i++)
		if (counters->events[i].works)
			names[count++] = counters->events[i].row.name;
	return counters && counters->cost.runs ? read_cost__json(&counters->cost, names, count) : json_null();
}

void counters__free(struct counters *counters)
{
	if (!counters)
		return;
	for (int i = 0; i < counters->asked; i++)
		cpu_event__close(&counters->events[i]);
	free(counters);
}

// SPDX-License-Identifier: GPL-2.0
#include "sampler.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/libbpf.h>
#include <sampling.skel.h>

#include "events.h"
#include "kernel/clock.h"
#include "kernel/pmu.h"
#include "report/message.h"
#include "report/names.h"
#include "watch_target.h"

struct sampler {
	unsigned int frequency_hz;
	struct events events[SAMPLE_CNT];
	struct event_row rows[SAMPLE_CNT];
	bool works[SAMPLE_CNT];
	char reasons[SAMPLE_CNT][128];
	/* Of this segment, 0 between two; then of all so far. */
	uint64_t since_ns;
	uint64_t enabled_ns;
};

static struct bpf_program *program_of(struct sampling *skel, enum sample_event event)
{
	switch (event) {
	case SAMPLE_CPU_CLOCK:
		return skel->progs.on_cpu_clock;
	case SAMPLE_CYCLES:
		return skel->progs.on_cycles;
	case SAMPLE_LLC_LOAD_MISSES:
		return skel->progs.on_llc_load_misses;
	default:
		return skel->progs.on_l1d_load_misses;
	}
}

/* On every CPU or on none. Of cpu-clock the kernel makes a fixed period (perf_swevent_init_hrtimer(), kernel/events/core.c). */
static int open_event(struct sampler *sampler, struct sampling *skel, enum sample_event event)
{
	const struct event_row *row = &sampler->rows[event];
	struct perf_event_attr attr = {
		.type = row->type,
		.freq = 1,
		.sample_freq = sampler->frequency_hz,
	};
	int cpus = libbpf_num_possible_cpus();

	for (int cpu = 0; cpu < cpus; cpu++) {
		int err;

		attr.config = pmu__config(row, cpu);
		err = events__add(&sampler->events[event], attr, program_of(skel, event), cpu);
		if (err == -ENODEV) /* an offline CPU */
			continue;
		if (err) {
			pmu__explain(err, sampler->reasons[event], sizeof(sampler->reasons[event]));
			events__close(&sampler->events[event]);
			return err;
		}
	}
	sampler->works[event] = true;
	return 0;
}

int sampler__load(struct sampling **result, const struct watch *watch)
{
	struct sampling *skel = sampling__open();
	int err;

	if (!skel)
		return -errno;
	if (watch) {
		skel->rodata->watch_mode = watch->mode;
		skel->rodata->watch_cgroup_id = watch->cgroup_id;
		skel->rodata->watch_cgroup_level = watch->cgroup_level;
	}
	err = sampling__load(skel);
	if (err)
		sampling__destroy(skel);
	else
		*result = skel;
	return err;
}

int sampler__open(struct sampler **result, struct sampling *skel, unsigned int frequency_hz)
{
	struct sampler *sampler = calloc(1, sizeof(*sampler));
	int err;

	if (!sampler)
		return -ENOMEM;
	sampler->frequency_hz = frequency_hz;
	for (int i = 0; i < SAMPLE_CNT; i++) {
		if (pmu__find(sample_names[i], &sampler->rows[i]))
			continue;
		sampler__close(sampler);
		return -ENOENT;
	}
	if (open_event(sampler, skel, SAMPLE_CYCLES)) {
		err = open_event(sampler, skel, SAMPLE_CPU_CLOCK);
		if (err) {
			complain("cpu-clock", "%s", sampler->reasons[SAMPLE_CPU_CLOCK]);
			sampler__close(sampler);
			return err;
		}
	} else {
		snprintf(sampler->reasons[SAMPLE_CPU_CLOCK], sizeof(sampler->reasons[SAMPLE_CPU_CLOCK]),
			 "cycles are sampled instead");
	}
	/* Misses are a welcome addition, where they exist. */
	open_event(sampler, skel, SAMPLE_LLC_LOAD_MISSES);
	open_event(sampler, skel, SAMPLE_L1D_LOAD_MISSES);
	*result = sampler;
	return 0;
}

static int switch_all(const struct sampler *sampler, unsigned long request)
{
	int err = 0;

	for (int i = 0; i < SAMPLE_CNT; i++)
		err = events__switch(&sampler->events[i], request) ?: err;
	return err;
}

int sampler__enable(struct sampler *sampler)
{
	sampler->since_ns = now_ns();
	return switch_all(sampler, PERF_EVENT_IOC_ENABLE);
}

int sampler__disable(struct sampler *sampler)
{
	int err = switch_all(sampler, PERF_EVENT_IOC_DISABLE);

	if (sampler->since_ns)
		sampler->enabled_ns += now_ns() - sampler->since_ns;
	sampler->since_ns = 0;
	return err;
}

json_t *sampler__json(const struct sampler *sampler)
{
	json_t *events = json_array();

	for (int i = 0; i < SAMPLE_CNT; i++)
		json_array_append_new(events, json_pack("{s:s, s:s, s:s, s:s?}",
			"name", sampler->rows[i].name, "unit", sampler->rows[i].unit,
			"status", sampler->works[i] ? "sampled" : "unsupported",
			"reason", sampler->works[i] ? NULL : sampler->reasons[i]));
	return json_pack("{s:i, s:I, s:o}", "frequency_hz", sampler->frequency_hz,
			 "enabled_ns", (json_int_t)sampler->enabled_ns, "events", events);
}

void sampler__close(struct sampler *sampler)
{
	if (!sampler)
		return;
	for (int i = 0; i < SAMPLE_CNT; i++)
		events__close(&sampler->events[i]);
	free(sampler);
}

// SPDX-License-Identifier: GPL-2.0-only
#include "sampler.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/libbpf.h>
#include <sampling.skel.h>

#include "events.h"
#include "interrupt_cost.h"
#include "kernel/clock.h"
#include "kernel/perf_open.h"
#include "kernel/pmu.h"
#include "report/message.h"
#include "report/names.h"
#include "trial.h"
#include "watch_target.h"

/* An event, on all CPUs that support it. */
struct sampled {
	struct events events;
	struct event_row row;
	enum coverage coverage;
	struct covered covered;
	struct interrupt_cost cost;
};

struct sampler {
	struct sampling *skel;
	unsigned int frequency_hz;
	struct sampled sampled[SAMPLE_CNT];
	/* Length of a reference cycle if ref-cycles are sampled instead of cycles; 0 otherwise. */
	double ref_cycle_ns;
	/* Start of the current segment (0 between segments), and total time of the earlier ones. */
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
	case SAMPLE_REF_CYCLES:
		return skel->progs.on_ref_cycles;
	case SAMPLE_LLC_LOAD_MISSES:
		return skel->progs.on_llc_load_misses;
	default:
		return skel->progs.on_l1d_load_misses;
	}
}

static void close_event(struct sampled *sampled)
{
	events__close(&sampled->events);
	sampled->coverage = COVERS_NOTHING;
}

static void set_reason(struct sampled *sampled, const char *reason)
{
	snprintf(sampled->covered.reason, sizeof(sampled->covered.reason), "%s", reason);
}

/*
 * Open an event on every CPU that has it. For cpu-clock, the kernel derives a fixed period from the frequency
 * (perf_swevent_init_hrtimer(), kernel/events/core.c).
 */
static enum coverage open_event(struct sampler *sampler, enum sample_event event)
{
	struct perf_event_attr attr = { .disabled = 1, .freq = 1, .sample_freq = sampler->frequency_hz };
	struct sampled *sampled = &sampler->sampled[event];
	int cpus = libbpf_num_possible_cpus();
	int *fds = calloc(cpus, sizeof(*fds));
	int err = fds ? 0 : -ENOMEM;

	if (fds)
		sampled->coverage = pmu__open(&sampled->row, attr, fds, cpus, &sampled->covered);
	for (int cpu = 0; fds && cpu < cpus; cpu++) {
		int failed = fds[cpu] < 0 ? 0 : events__add(&sampled->events, program_of(sampler->skel, event), fds[cpu]);

		err = err ?: failed;
	}
	free(fds);
	if (err) {
		close_event(sampled);
		sampled->covered.err = err;
		set_reason(sampled, strerror(-err));
	}
	return sampled->coverage;
}

/*
 * Open an event on all CPUs, and check that it interrupts; otherwise leave it out. Shares of samples from only some
 * CPUs would be meaningless.
 */
static bool open_on_all_cpus(struct sampler *sampler, enum sample_event event)
{
	struct sampled *sampled = &sampler->sampled[event];

	if (open_event(sampler, event) == COVERS_ALL) {
		if (trial__interrupts(&sampled->events, &sampler->skel->bss->interrupts[event]))
			return true;
		set_reason(sampled, "it opens, but this PMU did not interrupt in 10 ms of work");
	}
	close_event(sampled);
	return false;
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
		memcpy((void *)skel->rodata->task_offsets, watch->task_offsets, sizeof(watch->task_offsets));
	}
	err = sampling__load(skel);
	if (err)
		sampling__destroy(skel);
	else
		*result = skel;
	return err;
}

/*
 * Sample ref-cycles instead of cycles if all cores are of one type, because the shares are then the same. ref-cycles
 * run at the rate of the time stamp counter. Without cycles, the sampled events and the events of perf stat fit a PMU
 * with four counters (Intel, two threads per core).
 */
static bool ref_cycles_replace_cycles(struct sampler *sampler)
{
	struct sampled *ref_cycles = &sampler->sampled[SAMPLE_REF_CYCLES];

	if (ref_cycles->coverage != COVERS_ALL || pmu__types_differ())
		return false;
	sampler->ref_cycle_ns = perf_tsc_cycle_ns(ref_cycles->events.first->fd);
	if (!sampler->ref_cycle_ns)
		return false;
	ref_cycles->row.unit = "ns";
	set_reason(&sampler->sampled[SAMPLE_CYCLES], "ref-cycles are sampled instead");
	return true;
}

/*
 * Open an event that measures time: ref-cycles, which have the same rate on all cores; cycles, if all cores are of
 * one type; otherwise a timer, which cannot interrupt code that runs with interrupts disabled. Cycles are also a
 * column of their own.
 */
static int open_time(struct sampler *sampler)
{
	struct sampled *cpu_clock = &sampler->sampled[SAMPLE_CPU_CLOCK];
	bool ref_cycles, cycles;

	/* Count only interrupts, not stacks. */
	sampler->skel->bss->trying = 1;
	ref_cycles = open_on_all_cpus(sampler, SAMPLE_REF_CYCLES);
	cycles = !ref_cycles_replace_cycles(sampler) && open_on_all_cpus(sampler, SAMPLE_CYCLES);
	sampler->skel->bss->trying = 0;
	if (ref_cycles || (cycles && !pmu__types_differ())) {
		set_reason(cpu_clock, ref_cycles ? "ref-cycles are sampled instead" : "cycles are sampled instead");
		return 0;
	}
	if (open_event(sampler, SAMPLE_CPU_CLOCK) == COVERS_ALL)
		return 0;
	complain("cpu-clock", "%s", cpu_clock->covered.reason);
	return cpu_clock->covered.err;
}

/* Open the cache-miss events that this machine has, unless its PMU cannot interrupt. */
static void open_misses(struct sampler *sampler)
{
	static const enum sample_event misses[] = { SAMPLE_LLC_LOAD_MISSES, SAMPLE_L1D_LOAD_MISSES };
	const struct sampled *cycles = &sampler->sampled[SAMPLE_CYCLES];

	for (size_t i = 0; i < sizeof(misses) / sizeof(*misses); i++) {
		if (cycles->coverage == COVERS_NOTHING && !sampler->ref_cycle_ns)
			set_reason(&sampler->sampled[misses[i]], cycles->covered.reason);
		else
			open_event(sampler, misses[i]);
	}
}

/* Measure the events that each interrupt causes itself. The first event is the one that measures time. */
static void measure_interrupts(struct sampler *sampler)
{
	static const enum sample_event order[] = { SAMPLE_REF_CYCLES, SAMPLE_CYCLES, SAMPLE_LLC_LOAD_MISSES,
						   SAMPLE_L1D_LOAD_MISSES };
	const struct event_row *rows[SAMPLE_CNT];
	enum sample_event events[SAMPLE_CNT];
	struct interrupt_cost costs[SAMPLE_CNT] = {};
	int count = 0;

	for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++) {
		if (sampler->sampled[order[i]].coverage != COVERS_ALL)
			continue;
		events[count] = order[i];
		rows[count++] = &sampler->sampled[order[i]].row;
	}
	if (!count)
		return;
	sampler->skel->bss->trying = 1;
	if (pmu__types_differ())
		for (int i = 0; i < count; i++)
			strcpy(costs[i].reason, "this machine has several types of cores");
	else
		interrupt_cost__measure(rows, count, program_of(sampler->skel, events[0]),
					&sampler->skel->bss->interrupts[events[0]], costs);
	sampler->skel->bss->trying = 0;
	for (int i = 0; i < count; i++)
		sampler->sampled[events[i]].cost = costs[i];
}

static int open_all(struct sampler *sampler)
{
	int err = 0;

	sampler->ref_cycle_ns = 0;
	for (int i = 0; i < SAMPLE_CNT; i++)
		if (!pmu__find(sample_names[i], &sampler->sampled[i].row))
			err = -ENOENT;
	err = err ?: open_time(sampler);
	if (err)
		return err;
	open_misses(sampler);
	measure_interrupts(sampler);
	return 0;
}

int sampler__open(struct sampler **result, struct sampling *skel, unsigned int frequency_hz)
{
	struct sampler *sampler = calloc(1, sizeof(*sampler));
	int err;

	if (!sampler)
		return -ENOMEM;
	sampler->skel = skel;
	sampler->frequency_hz = frequency_hz;
	err = open_all(sampler);
	if (err) {
		sampler__close(sampler);
		return err;
	}
	*result = sampler;
	return 0;
}

int sampler__reopen(struct sampler *sampler)
{
	for (int i = 0; i < SAMPLE_CNT; i++)
		close_event(&sampler->sampled[i]);
	return open_all(sampler);
}

static int switch_all(const struct sampler *sampler, unsigned long request)
{
	int err = 0;

	for (int i = 0; i < SAMPLE_CNT; i++)
		err = events__switch(&sampler->sampled[i].events, request) ?: err;
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

/* unit: factor from the events that the PMU counts to the unit of the report */
static json_t *cost_json(const struct interrupt_cost *cost, double unit)
{
	if (*cost->reason)
		return json_pack("{s:n, s:n, s:i, s:s}", "mean", "deviation", "pairs", 0, "reason", cost->reason);
	return json_pack("{s:f, s:f, s:i, s:n}", "mean", cost->mean * unit, "deviation", cost->deviation * unit, "pairs",
			 INTERRUPT_COST_PAIRS, "reason");
}

static json_t *sampled_json(const struct sampled *sampled, double unit)
{
	static const char *const statuses[] = {
		[COVERS_NOTHING] = "unsupported", [COVERS_SOME] = "partial", [COVERS_ALL] = "sampled",
	};
	const char *reason = sampled->covered.reason;
	json_t *event = json_pack("{s:s, s:s, s:s, s:s?}", "name", sampled->row.name, "unit", sampled->row.unit,
				  "status", statuses[sampled->coverage], "reason", *reason ? reason : NULL);

	if (sampled->row.counts)
		json_object_set_new(event, "counts", json_string(sampled->row.counts));
	if (sampled->coverage == COVERS_ALL && sampled->row.type != PERF_TYPE_SOFTWARE)
		json_object_set_new(event, "per_interrupt", cost_json(&sampled->cost, unit));
	return event;
}

double sampler__weight_unit(const struct sampler *sampler, enum sample_event event)
{
	return sampler && event == SAMPLE_REF_CYCLES && sampler->ref_cycle_ns ? sampler->ref_cycle_ns : 1;
}

json_t *sampler__json(const struct sampler *sampler)
{
	json_t *events = json_array();

	for (int i = 0; i < SAMPLE_CNT; i++)
		json_array_append_new(events, sampled_json(&sampler->sampled[i], sampler__weight_unit(sampler, i)));
	return json_pack("{s:i, s:I, s:o}", "frequency_hz", sampler->frequency_hz,
			 "enabled_ns", (json_int_t)sampler->enabled_ns, "events", events);
}

void sampler__close(struct sampler *sampler)
{
	if (!sampler)
		return;
	for (int i = 0; i < SAMPLE_CNT; i++)
		events__close(&sampler->sampled[i].events);
	free(sampler);
}

// SPDX-License-Identifier: GPL-2.0
#include "sampler.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <bpf/libbpf.h>
#include <sampling.skel.h>

#include "bursts.h"
#include "cpu_timers.h"
#include "events.h"
#include "kernel/clock.h"
#include "kernel/pmu.h"
#include "process_clocks.h"
#include "report/maps.h"
#include "report/message.h"
#include "report/names.h"
#include "thread_timers.h"
#include "timer_rate.h"
#include "watch_target.h"

/*
 * A process that runs for long is sampled all the time. One that sleeps all the time pays for the armed timer at each
 * sleep, so its timers are armed in bursts, few and dense. Tasks that are no target do little of the work.
 */
#define BURST_HZ 10000
#define OTHER_SHARE 2
#define SHORT_SLICE_NS 100000

struct sampler {
	unsigned int frequency_hz;
	enum timers chosen;
	struct thread_timers timers[SIDE_TARGETS];
	/* One per CPU, of SIDE_OTHER. */
	struct events timers_elsewhere;
	__u64 period_elsewhere_ns;
	/* One per CPU, of a watched program; with TIMERS_OF_CPUS its threads have none. */
	struct events timers_of_cpus;
	struct process_clocks clocks;
	unsigned int bursts_by_cpus;
	struct events counters;
	struct bursts *bursts;
	/* CPU time of the targets in their bursts; read_err: it could not be read. */
	uint64_t cpu_ns[SIDE_TARGETS];
	/* What samples said more or less than that, squared, over the bursts: how far chance leads them apart. */
	double difference_us_squared[SIDE_TARGETS];
	const volatile __u64 *samples_of_side;
	/* Before this burst. */
	__u64 samples_before[SIDE_TARGETS];
	int read_err[SIDE_TARGETS];
	struct packet_watch packets;
	struct event_row rows[SAMPLE_CNT];
	bool works[SAMPLE_CNT];
	char reasons[SAMPLE_CNT][128];
};

static struct bpf_program *counter_program(struct sampling *skel, int event)
{
	switch (event) {
	case SAMPLE_CYCLES:
		return skel->progs.on_cycles;
	case SAMPLE_LLC_LOAD_MISSES:
		return skel->progs.on_llc_load_misses;
	default:
		return skel->progs.on_l1d_load_misses;
	}
}

/* One per CPU, all or nothing. */
static int open_counters(struct sampler *sampler, struct sampling *skel, int event)
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
		err = events__add(&sampler->counters, attr, counter_program(skel, event), -1, cpu);
		if (err == -ENODEV) /* an offline CPU */
			continue;
		if (err) {
			pmu__explain(err, sampler->reasons[event], sizeof(sampler->reasons[event]));
			return err;
		}
	}
	sampler->works[event] = true;
	return 0;
}

/* How long a process runs before it leaves the CPU, over all its threads so far; 0 when that is unknown. */
static uint64_t mean_timeslice_ns(pid_t pid)
{
	unsigned long long ran_ns, waited_ns, slices, total_ns = 0, total_slices = 0;
	char path[64];
	struct dirent *entry;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	while (tasks && (entry = readdir(tasks))) {
		FILE *file;

		/* The process itself has such a file, too: that of its first thread (`..`). */
		if (*entry->d_name == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/schedstat", pid, entry->d_name);
		file = fopen(path, "re");
		if (file && fscanf(file, "%llu %llu %llu", &ran_ns, &waited_ns, &slices) == 3) {
			total_ns += ran_ns;
			total_slices += slices;
		}
		if (file)
			fclose(file);
	}
	if (tasks)
		closedir(tasks);
	return total_slices ? total_ns / total_slices : 0;
}

static int watch_packets(struct sampler *sampler, bool on)
{
	return sampler->packets.watch(sampler->packets.context, on);
}

static int prepare(void *context, enum side side, bool on)
{
	return side == SIDE_OTHER ? watch_packets(context, on) : 0;
}

static void count_used(struct sampler *sampler, enum side side, uint64_t used_ns)
{
	__u64 samples = sampler->samples_of_side[side] - sampler->samples_before[side];
	double difference_us = ((double)samples * sampler->timers[side].period_ns - used_ns) / 1000;

	sampler->cpu_ns[side] += used_ns;
	sampler->difference_us_squared[side] += difference_us * difference_us;
}

static int arm_by_cpus(struct sampler *sampler, enum side side, uint64_t *since_ns)
{
	struct watched *watched = &sampler->timers[side].watched;

	watched__update(watched);
	process_clocks__begin(&sampler->clocks, watched);
	*since_ns = now_ns();
	return events__switch(&sampler->timers_of_cpus, PERF_EVENT_IOC_ENABLE);
}

static int disarm_by_cpus(struct sampler *sampler, enum side side, bool counted)
{
	int err = events__switch(&sampler->timers_of_cpus, PERF_EVENT_IOC_DISABLE);
	uint64_t used_ns = process_clocks__used_ns(&sampler->clocks, &sampler->timers[side].watched);

	if (counted) {
		count_used(sampler, side, used_ns);
		sampler->bursts_by_cpus++;
	}
	return err;
}

static int arm(void *context, enum side side, uint64_t *since_ns)
{
	struct sampler *sampler = context;

	if (side == SIDE_OTHER) {
		*since_ns = now_ns();
		return events__switch(&sampler->timers_elsewhere, PERF_EVENT_IOC_ENABLE);
	}
	sampler->samples_before[side] = sampler->samples_of_side[side];
	if (sampler->chosen == TIMERS_OF_CPUS)
		return arm_by_cpus(sampler, side, since_ns);
	return thread_timers__arm(&sampler->timers[side], since_ns);
}

static int disarm(void *context, enum side side, bool counted)
{
	struct sampler *sampler = context;
	uint64_t used_ns;
	int err, read_err;

	if (side == SIDE_OTHER)
		return events__switch(&sampler->timers_elsewhere, PERF_EVENT_IOC_DISABLE);
	if (sampler->chosen == TIMERS_OF_CPUS)
		return disarm_by_cpus(sampler, side, counted);
	err = thread_timers__disarm(&sampler->timers[side]);
	read_err = thread_timers__used(&sampler->timers[side], &used_ns);
	if (read_err)
		sampler->read_err[side] = read_err;
	else if (counted)
		count_used(sampler, side, used_ns);
	if (sampler->chosen != TIMERS_OF_THREADS)
		thread_timers__rest(&sampler->timers[side]);
	return err;
}

/* Whether the threads that a side has now can have timers. */
static int try_timers(struct sampler *sampler, enum side side)
{
	uint64_t ns;
	int err = arm(sampler, side, &ns);

	return disarm(sampler, side, false) ?: err;
}

/* The threads of a watched program may come and go: no timer may wait for longer than such a thread lives. */
static unsigned int timer_hz(pid_t pid, unsigned int frequency_hz, unsigned int burst_hz)
{
	bool sleeps = !pid || mean_timeslice_ns(pid) < SHORT_SLICE_NS;

	return sleeps && burst_hz > frequency_hz ? burst_hz : frequency_hz;
}

static int open_timers(struct sampler *sampler, struct sampling *skel, const struct watched_map *watched,
		       double duties[SIDES])
{
	unsigned int burst_hz = timer_rate__find(skel->progs.on_cpu_clock, skel->bss->samples_of_side, BURST_HZ);
	unsigned int hz = timer_hz(0, sampler->frequency_hz, burst_hz);
	int err;

	duties[SIDE_OTHER] = (double)sampler->frequency_hz / hz;
	if (duties[SIDE_OTHER] < 1)
		duties[SIDE_OTHER] /= OTHER_SHARE;
	sampler->period_elsewhere_ns = NSEC_PER_SEC / hz;
	err = cpu_timers__open(&sampler->timers_elsewhere, skel->progs.on_cpu_clock_elsewhere, sampler->period_elsewhere_ns);
	if (watched && !err)
		err = cpu_timers__open(&sampler->timers_of_cpus, skel->progs.on_cpu_clock_of_targets, NSEC_PER_SEC / hz);
	for (int side = 0; side < SIDE_TARGETS; side++) {
		pid_t pid = watched ? 0 : skel->bss->target_tgid[side];
		/* Without a process there is nothing to arm. */
		bool there = pid || (watched && side == SIDE_SENDER);

		hz = timer_hz(pid, sampler->frequency_hz, burst_hz);
		duties[side] = there ? (double)sampler->frequency_hz / hz : 0;
		sampler->timers[side].program = skel->progs.on_cpu_clock;
		sampler->timers[side].period_ns = NSEC_PER_SEC / hz;
		sampler->timers[side].pid = pid;
		if (watched) {
			sampler->timers[side].watched.map = *watched;
			sampler->timers[side].births.map = watched->births;
		}
		if (there && !err)
			err = try_timers(sampler, side);
	}
	if (err)
		snprintf(sampler->reasons[SAMPLE_CPU_CLOCK], sizeof(sampler->reasons[SAMPLE_CPU_CLOCK]), "perf_event_open: %s",
			 strerror(-err));
	sampler->works[SAMPLE_CPU_CLOCK] = !err;
	return err;
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

int sampler__open(struct sampler **result, struct sampling *skel, unsigned int frequency_hz,
		  const struct watched_map *watched, enum timers chosen, const struct packet_watch *packets)
{
	struct sampler *sampler = calloc(1, sizeof(*sampler));
	double duties[SIDES];
	int err;

	if (!sampler)
		return -ENOMEM;
	sampler->frequency_hz = frequency_hz;
	sampler->packets = *packets;
	sampler->chosen = chosen;
	sampler->samples_of_side = skel->bss->samples_of_side;
	for (int i = 0; i < SAMPLE_CNT; i++) {
		if (pmu__find(sample_names[i], &sampler->rows[i]))
			continue;
		sampler__close(sampler);
		return -ENOENT;
	}
	err = open_counters(sampler, skel, SAMPLE_CYCLES);
	if (err) {
		const struct burst_timers timers = { sampler, prepare, arm, disarm, skel->bss->samples_of_side,
						     skel->bss->burst_group };

		err = open_timers(sampler, skel, watched, duties) ?: bursts__new(&sampler->bursts, &timers, duties);
	} else {
		snprintf(sampler->reasons[SAMPLE_CPU_CLOCK], sizeof(sampler->reasons[SAMPLE_CPU_CLOCK]),
			 "cycles are sampled instead");
	}
	/* What the trial of the rate has sampled is of no segment. */
	err = err ?: maps__clear(skel->maps.stacks);
	if (err) {
		complain("cpu-clock", "%s", *sampler->reasons[SAMPLE_CPU_CLOCK] ? sampler->reasons[SAMPLE_CPU_CLOCK] :
			 strerror(-err));
		sampler__close(sampler);
		return err;
	}
	/* Misses are a welcome addition, where they exist. */
	open_counters(sampler, skel, SAMPLE_LLC_LOAD_MISSES);
	open_counters(sampler, skel, SAMPLE_L1D_LOAD_MISSES);
	*result = sampler;
	return 0;
}

void sampler__choose(struct sampler *sampler, enum timers timers)
{
	for (int side = 0; side < SIDE_TARGETS; side++) {
		/* A side of many threads keeps theirs. */
		if (timers == TIMERS_OF_BURSTS)
			thread_timers__rest(&sampler->timers[side]);
		else if (timers == TIMERS_OF_CPUS)
			thread_timers__close(&sampler->timers[side]);
	}
	sampler->chosen = timers;
}

int sampler__enable(struct sampler *sampler, bool counted)
{
	int err = events__switch(&sampler->counters, PERF_EVENT_IOC_ENABLE);

	if (err)
		return err;
	/* Counters run all the time, timers in bursts. */
	return sampler->bursts ? bursts__start(sampler->bursts, counted) : watch_packets(sampler, true);
}

int sampler__disable(struct sampler *sampler)
{
	int err = sampler->bursts ? bursts__stop(sampler->bursts) : watch_packets(sampler, false);

	return events__switch(&sampler->counters, PERF_EVENT_IOC_DISABLE) ?: err;
}

double sampler__scale(const struct sampler *sampler, enum side side)
{
	uint64_t armed_ns = sampler->bursts ? bursts__totals(sampler->bursts, side).armed_ns : 0;

	return armed_ns ? (double)bursts__enabled_ns(sampler->bursts) / armed_ns : 1;
}

static json_t *burst_json(const struct sampler *sampler, enum side side)
{
	struct burst_totals totals = bursts__totals(sampler->bursts, side);
	bool target = side < SIDE_TARGETS;
	json_t *cpu_ns = NULL, *by_cpus = NULL, *difference = NULL;

	if (target) {
		difference = sampler->read_err[side] ? json_null() : json_integer(sampler->difference_us_squared[side]);
		cpu_ns = sampler->read_err[side] ? json_null() : json_integer(sampler->cpu_ns[side]);
		by_cpus = json_integer(sampler->bursts_by_cpus);
	}
	return json_pack("{s:I, s:I, s:o*, s:o*, s:i, s:o*, s:I, s:I}",
			 "period_ns", (json_int_t)(target ? sampler->timers[side].period_ns : sampler->period_elsewhere_ns),
			 "armed_ns", (json_int_t)totals.armed_ns,
			 "cpu_ns", cpu_ns, "difference_us_squared", difference, "count", totals.count,
			 "by_cpus", by_cpus, "samples", (json_int_t)totals.samples, "samples_squared", (json_int_t)totals.samples_squared);
}

static json_t *bursts_json(const struct sampler *sampler)
{
	json_t *sides = json_object();

	for (int side = 0; side < SIDES; side++)
		json_object_set_new(sides, side_names[side], burst_json(sampler, side));
	return sides;
}

json_t *sampler__json(const struct sampler *sampler)
{
	json_t *events = json_array();

	for (int i = 0; i < SAMPLE_CNT; i++)
		json_array_append_new(events, json_pack("{s:s, s:s, s:s, s:s?}",
			"name", sampler->rows[i].name, "unit", sampler->rows[i].unit,
			"status", sampler->works[i] ? "sampled" : "unsupported",
			"reason", sampler->works[i] ? NULL : sampler->reasons[i]));
	return json_pack("{s:i, s:I, s:o, s:o}", "frequency_hz", sampler->frequency_hz,
			 "enabled_ns", (json_int_t)(sampler->bursts ? bursts__enabled_ns(sampler->bursts) : 0),
			 "bursts", sampler->bursts ? bursts_json(sampler) : json_null(),
			 "events", events);
}

json_t *sampler__loss_json(const struct sampler *sampler)
{
	unsigned int untimed = 0, threads = 0;

	for (int side = 0; sampler && side < SIDE_TARGETS; side++) {
		untimed += sampler->timers[side].untimed;
		threads += sampler->timers[side].threads;
	}
	return json_pack("{s:i, s:i}", "count", untimed, "of", threads);
}

void sampler__close(struct sampler *sampler)
{
	if (!sampler)
		return;
	bursts__free(sampler->bursts);
	for (int side = 0; side < SIDE_TARGETS; side++)
		thread_timers__close(&sampler->timers[side]);
	events__close(&sampler->timers_elsewhere);
	events__close(&sampler->timers_of_cpus);
	events__close(&sampler->counters);
	free(sampler);
}

// SPDX-License-Identifier: GPL-2.0
#include "sampler.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <bpf/libbpf.h>
#include <sampling.skel.h>

#include "bursts.h"
#include "events.h"
#include "kernel/pmu.h"
#include "report/maps.h"
#include "report/message.h"
#include "report/names.h"
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
	__u64 periods_ns[SIDES];
	struct events timers[SIDES];
	struct events counters;
	/* Threads that were found, and those of them that could not have a timer. */
	unsigned int threads;
	unsigned int untimed;
	struct bursts *bursts;
	volatile __u32 *others_sampled;
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

/* A side is as restless as its least restless process: that one does most of the work. */
static unsigned int timer_hz(const struct target_pids *targets, unsigned int frequency_hz, unsigned int burst_hz)
{
	uint64_t longest_ns = 0;
	bool sleeps;

	for (int i = 0; targets && i < targets->count; i++) {
		uint64_t mean_ns = mean_timeslice_ns(targets->pids[i]);

		longest_ns = mean_ns > longest_ns ? mean_ns : longest_ns;
	}
	sleeps = longest_ns < SHORT_SLICE_NS || (targets && targets->restless);

	return sleeps && burst_hz > frequency_hz ? burst_hz : frequency_hz;
}

/* Hooks come and go meanwhile, and what is read of /proc. */
#define FILES_OF_OTHERS 512

/* Two files for each timer: the event and its link. */
static int timers_that_fit(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur == RLIM_INFINITY)
		return INT_MAX;
	return files.rlim_cur > FILES_OF_OTHERS ? (files.rlim_cur - FILES_OF_OTHERS) / 2 : 0;
}

/* Threads that cannot have a timer are counted: the others' samples are not all. */
static int open_thread_timer(struct sampler *sampler, struct events *timers, struct bpf_program *program,
			     struct perf_event_attr attr, pid_t tid)
{
	int err = timers->count < timers_that_fit() ? events__add(timers, attr, program, tid, -1) : -EMFILE;

	if (err == -ESRCH) /* it has ended meanwhile */
		return 0;
	sampler->threads++;
	if (err != -EMFILE && err != -ENFILE && err != -ENOMEM)
		return err;
	sampler->untimed++;
	return 0;
}

/* One for each thread of a process, as far as there are files for them; those that they start later have them, too. */
static int open_thread_timers(struct sampler *sampler, struct sampling *skel, enum side side, pid_t pid)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = sampler->periods_ns[side],
		.inherit = 1,
	};
	char path[32];
	struct dirent *entry;
	DIR *tasks;
	int err = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	if (!tasks) /* it has ended meanwhile */
		return errno == ENOENT ? 0 : -errno;
	while (!err && (entry = readdir(tasks))) {
		pid_t tid = atoi(entry->d_name);

		if (tid > 0)
			err = open_thread_timer(sampler, &sampler->timers[side], skel->progs.on_cpu_clock, attr, tid);
	}
	closedir(tasks);
	return err;
}

static int open_timers(struct sampler *sampler, struct sampling *skel, const struct target_pids targets[SIDE_TARGETS], double duties[SIDES])
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
	};
	unsigned int burst_hz = timer_rate__find(skel->progs.on_cpu_clock, skel->bss->samples_of_side, BURST_HZ);
	int cpus = libbpf_num_possible_cpus();
	int err = 0;

	for (int side = 0; side < SIDES; side++) {
		unsigned int hz = timer_hz(side < SIDE_TARGETS ? &targets[side] : NULL,
					   sampler->frequency_hz, burst_hz);

		sampler->periods_ns[side] = 1000000000ULL / hz;
		duties[side] = (double)sampler->frequency_hz / hz;
		if (side == SIDE_OTHER && duties[side] < 1)
			duties[side] /= OTHER_SHARE;
		/* Without a process there is nothing to arm. */
		if (side < SIDE_TARGETS && !targets[side].count)
			duties[side] = 0;
	}
	for (int side = 0; side < SIDE_TARGETS; side++)
		for (int n = 0; n < targets[side].count && !err; n++)
			err = open_thread_timers(sampler, skel, side, targets[side].pids[n]);
	attr.sample_period = sampler->periods_ns[SIDE_OTHER];
	for (int cpu = 0; cpu < cpus && !err; cpu++) {
		err = events__add(&sampler->timers[SIDE_OTHER], attr, skel->progs.on_cpu_clock_elsewhere, -1,
				  cpu);
		if (err == -ENODEV)
			err = 0;
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
		  const struct target_pids targets[SIDE_TARGETS], volatile __u32 *others_sampled)
{
	struct sampler *sampler = calloc(1, sizeof(*sampler));
	double duties[SIDES];
	int err;

	if (!sampler)
		return -ENOMEM;
	sampler->frequency_hz = frequency_hz;
	sampler->others_sampled = others_sampled;
	for (int i = 0; i < SAMPLE_CNT; i++) {
		if (pmu__find(sample_names[i], &sampler->rows[i]))
			continue;
		sampler__close(sampler);
		return -ENOENT;
	}
	err = open_counters(sampler, skel, SAMPLE_CYCLES);
	if (err) {
		err = open_timers(sampler, skel, targets, duties);
		if (!err)
			err = bursts__new(&sampler->bursts, sampler->timers, duties,
					  skel->bss->samples_of_side, others_sampled);
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

int sampler__add(struct sampler *sampler, struct sampling *skel, pid_t pid)
{
	/* Counters are open on every CPU and see it already. */
	return sampler->bursts ? open_thread_timers(sampler, skel, SIDE_SENDER, pid) : 0;
}

int sampler__enable(struct sampler *sampler, bool counted)
{
	int err;

	/* Timers say so themselves, whenever they are armed. */
	*sampler->others_sampled = !sampler->bursts;
	err = events__switch(&sampler->counters, PERF_EVENT_IOC_ENABLE);
	if (!err && sampler->bursts)
		err = bursts__start(sampler->bursts, counted);
	return err;
}

int sampler__disable(struct sampler *sampler)
{
	int err = sampler->bursts ? bursts__stop(sampler->bursts) : 0;

	*sampler->others_sampled = 0;
	return events__switch(&sampler->counters, PERF_EVENT_IOC_DISABLE) ?: err;
}

double sampler__scale(const struct sampler *sampler, enum side side)
{
	uint64_t armed_ns = sampler->bursts ? bursts__totals(sampler->bursts, side).armed_ns : 0;

	return armed_ns ? (double)bursts__enabled_ns(sampler->bursts) / armed_ns : 1;
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
			 "bursts", sampler->bursts ? bursts__json(sampler->bursts, sampler->periods_ns) : json_null(),
			 "events", events);
}

json_t *sampler__loss_json(const struct sampler *sampler, unsigned int lost)
{
	return json_pack("{s:I, s:I}", "count", (json_int_t)(sampler ? sampler->untimed : 0) + lost,
			 "of", (json_int_t)(sampler ? sampler->threads : 0) + lost);
}

void sampler__close(struct sampler *sampler)
{
	if (!sampler)
		return;
	bursts__free(sampler->bursts);
	for (int side = 0; side < SIDES; side++)
		events__close(&sampler->timers[side]);
	events__close(&sampler->counters);
	free(sampler);
}

// SPDX-License-Identifier: GPL-2.0-only
/* Tests of the sampler on simulated machines: their sysfs, the answers of perf_event_open(2), and the events that are sampled. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <bpf/libbpf.h>
#include <jansson.h>

#include "../../src/collector/functions/cpu_event.h"
#include "../../src/collector/kernel/core_pmus.h"
#include "../../src/collector/kernel/perf_open.h"
#include "../../src/collector/kernel/pmu.h"
#include "../../src/collector/report/names.h"
#include "../../src/collector/sampling/interrupt_cost.h"
#include "../../src/collector/sampling/sampler.h"
#include "check.h"
#include "sampling.skel.h"

#define L1D_LOAD_MISSES (PERF_COUNT_HW_CACHE_L1D | PERF_COUNT_HW_CACHE_RESULT_MISS << 16)
#define LLC_LOAD_MISSES (PERF_COUNT_HW_CACHE_LL | PERF_COUNT_HW_CACHE_RESULT_MISS << 16)
#define CPUS 8

/* A simulated PMU. As in the kernel, it has a type number, and its events exist only on its CPUs. */
struct posed_pmu {
	const char *name;
	unsigned int type;
	/* Mask of CPUs. sysfs lists only those that are online. */
	unsigned int cpus;
	bool l1d, llc, ref_cycles;
};

static struct {
	struct posed_pmu pmus[4];
	unsigned int online;
	/* On hybrid x86 the kernel checks the CPUs of a PMU before it checks whether they are online. */
	bool hybrid;
	bool extended_types;
	/* Events can be opened and count, but never interrupt. */
	bool dead;
	/* The kernel does not convert the time stamp counter. */
	bool no_tsc;
	char root[64];
	/* Requested samples per second of the last event of each kind on each CPU. */
	double rates[SAMPLE_CNT][CPUS];
} machine;

static bool has(const struct posed_pmu *pmu, unsigned int type, __u64 config)
{
	if (type == PERF_TYPE_RAW)
		return config == 0x4843;
	if (type == PERF_TYPE_HW_CACHE)
		return config == L1D_LOAD_MISSES ? pmu->l1d : config == LLC_LOAD_MISSES && pmu->llc;
	return config != PERF_COUNT_HW_REF_CPU_CYCLES || pmu->ref_cycles;
}

/*
 * Answer like perf_init_event() in kernel/events/core.c and x86_pmu_event_init(): the PMU whose type is in the config, else the
 * first PMU that accepts the event.
 */
static int answer(const struct perf_event_attr *attr, int cpu)
{
	unsigned int wanted = attr->config >> 32;

	if (wanted && !machine.extended_types)
		return -ENOENT;
	for (const struct posed_pmu *pmu = machine.pmus; pmu->name; pmu++) {
		/* Without a type the event is a raw event. On x86 the first PMU handles these. */
		if (wanted ? pmu->type != wanted : machine.hybrid && pmu != machine.pmus)
			continue;
		if (!(pmu->cpus & machine.online & 1U << cpu)) {
			if (machine.hybrid || machine.online & 1U << cpu)
				continue;
			return -ENODEV;
		}
		return has(pmu, attr->type, attr->config & 0xffffffff) ? 0 : -ENOENT;
	}
	return -ENOENT;
}

/* Record the sampling rate. For a timer, convert the period like perf_swevent_init_hrtimer(). */
static void note_rate(const struct perf_event_attr *attr, int cpu)
{
	bool timer = attr->type == PERF_TYPE_SOFTWARE;
	double rate = attr->freq ? attr->sample_freq : 1e9 / attr->sample_period;

	machine.rates[timer ? SAMPLE_CPU_CLOCK : SAMPLE_CYCLES][cpu] = rate;
}

int perf_open(struct perf_event_attr *attr, pid_t task, int cpu)
{
	int err = -ENODEV;

	(void)task;
	if (attr->sample_period)
		note_rate(attr, cpu);
	if (attr->type != PERF_TYPE_SOFTWARE)
		err = answer(attr, cpu);
	else if (machine.online & 1U << cpu)
		err = 0;
	return err ?: open("/dev/null", O_RDONLY);
}

void interrupt_cost__measure(const struct event_row *const rows[], int count, struct bpf_program *program,
			     const volatile __u64 *interrupts, struct interrupt_cost costs[])
{
	(void)rows;
	(void)program;
	(void)interrupts;
	for (int i = 0; i < count; i++)
		costs[i].mean = 1;
}

double perf_tsc_cycle_ns(int fd)
{
	return fd < 0 || machine.no_tsc ? 0 : 0.4;
}

struct bpf_link *bpf_program__attach_perf_event(const struct bpf_program *program, int fd)
{
	(void)program;
	return (struct bpf_link *)(intptr_t)(fd + 1);
}

int bpf_link__destroy(struct bpf_link *link)
{
	return link ? close((intptr_t)link - 1) : 0;
}

int libbpf_num_possible_cpus(void)
{
	return CPUS;
}

static void write_file(const char *path, const char *text)
{
	char whole[256];
	FILE *file;

	for (const char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
		snprintf(whole, sizeof(whole), "%s%.*s", machine.root, (int)(at - path), path);
		mkdir(whole, 0700);
	}
	snprintf(whole, sizeof(whole), "%s%s", machine.root, path);
	file = fopen(whole, "w");
	fputs(text, file);
	fclose(file);
}

static void write_cpus(const char *path, unsigned int cpus)
{
	char text[64] = "";

	for (int cpu = 0; cpu < CPUS; cpu++)
		if (cpus & 1U << cpu)
			snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%d", *text ? "," : "", cpu);
	strcat(text, "\n");
	write_file(path, text);
}

/* Create the sysfs of the machine. `plain`: an x86 machine with one kind of core and one PMU. */
static void pose(bool plain)
{
	char path[128], text[16];

	strcpy(machine.root, "/tmp/copyscope-unit-XXXXXX");
	mkdtemp(machine.root);
	core_pmus_root = machine.root;
	write_cpus("/sys/devices/system/cpu/online", machine.online);
	for (const struct posed_pmu *pmu = machine.pmus; pmu->name; pmu++) {
		snprintf(path, sizeof(path), "/sys/bus/event_source/devices/%s/type", pmu->name);
		snprintf(text, sizeof(text), "%u\n", pmu->type);
		write_file(path, text);
		snprintf(path, sizeof(path), "/sys/bus/event_source/devices/%s/cpus", pmu->name);
		if (!plain)
			write_cpus(path, pmu->cpus & machine.online);
	}
	/* A PMU that does not belong to cores has a cpumask. */
	write_file("/sys/bus/event_source/devices/uncore_imc_0/cpumask", "0\n");
}

static void leave(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", machine.root);
	CHECK_EQUAL(system(command), 0);
	core_pmus_root = "";
	core_pmus__forget();
	memset(&machine, 0, sizeof(machine));
}

/* Simulate two P cores with two threads each, and E cores, which have no event for L1D misses (glp_hw_cache_event_ids[]). */
static void pose_as_hybrid(unsigned int online)
{
	machine.pmus[0] = (struct posed_pmu){ "cpu_core", 4, 0x0f, true, true, true };
	machine.pmus[1] = (struct posed_pmu){ "cpu_atom", 10, machine.pmus[2].name ? 0x30 : 0xf0, false, true, true };
	machine.hybrid = machine.extended_types = true;
	machine.online = online;
	pose(false);
}

static void pose_as_amd(void)
{
	machine.pmus[0] = (struct posed_pmu){ "cpu", 4, 0xff, true, false, false };
	machine.online = 0xff;
	pose(true);
	write_file("/proc/cpuinfo", "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: x\n\n");
}

static json_t *sampled;

/* Return the sampler's report about an event: "status: reason". */
static const char *said_of(enum sample_event event)
{
	static char text[300];
	const json_t *row = json_array_get(json_object_get(sampled, "events"), event);
	const char *reason = json_string_value(json_object_get(row, "reason"));

	snprintf(text, sizeof(text), "%s%s%s", json_string_value(json_object_get(row, "status")), reason ? ": " : "", reason ?: "");
	return text;
}

static int open_files(void)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static struct sampling__bss bss;

/* Replacement for an interrupt of the PMU and for the BPF program that it runs. */
static void interrupt(int signal)
{
	(void)signal;
	for (int event = 0; event < SAMPLE_CNT && bss.trying && !machine.dead; event++)
		bss.interrupts[event]++;
}

static void interrupt_every(int us)
{
	const struct itimerval every = { { 0, us }, { 0, us } };

	signal(SIGALRM, interrupt);
	setitimer(ITIMER_REAL, &every, NULL);
}

/* Open the sampler, save its report, and close it. Return the number of events that were open. */
static int sample(void)
{
	struct sampling skel = { .bss = &bss };
	struct sampler *sampler;
	int before = open_files(), opened, err;

	interrupt_every(1000);
	err = sampler__open(&sampler, &skel, 199);
	interrupt_every(0);
	if (err)
		return -1;
	opened = open_files() - before;
	json_decref(sampled);
	sampled = sampler__json(sampler);
	sampler__close(sampler);
	return open_files() == before && !bss.trying ? opened : -1;
}

#define CHECK_SAID(event, words) \
	do { \
		const char *said_ = said_of(event); \
		if (strcmp(said_, words)) \
			printf("  said: %s\n", said_); \
		CHECK(!strcmp(said_, words)); \
	} while (0)

TEST("sampler: one offline CPU of a hybrid machine closes no event")
{
	pose_as_hybrid(0xfd);
	/* Events: ref-cycles, cycles and LLC on seven CPUs each, L1D on three. */
	CHECK_EQUAL(sample(), 3 * 7 + 3);
	CHECK_SAID(SAMPLE_REF_CYCLES, "sampled");
	CHECK_SAID(SAMPLE_CYCLES, "sampled");
	CHECK_SAID(SAMPLE_LLC_LOAD_MISSES, "sampled");
	CHECK_SAID(SAMPLE_L1D_LOAD_MISSES, "partial: only on CPUs 0,2-3: cpu_atom has no such event");
	CHECK_SAID(SAMPLE_CPU_CLOCK, "unsupported: ref-cycles are sampled instead");
	leave();
}

TEST("sampler: a third type of cores has its PMU, too")
{
	machine.pmus[2] = (struct posed_pmu){ "cpu_lowpower", 11, 0xc0, true, true, true };
	pose_as_hybrid(0xff);
	CHECK_EQUAL(sample(), 3 * 8 + 6);
	CHECK_SAID(SAMPLE_CYCLES, "sampled");
	CHECK_SAID(SAMPLE_L1D_LOAD_MISSES, "partial: only on CPUs 0-3,6-7: cpu_atom has no such event");
	leave();
}

TEST("sampler: where cores differ and nothing goes at one rate on all, a timer shows time")
{
	machine.pmus[0] = (struct posed_pmu){ "armv8_cortex_a53", 8, 0x0f, true, true, false };
	machine.pmus[1] = (struct posed_pmu){ "armv8_cortex_a72", 9, 0xf0, true, true, false };
	machine.online = 0xff;
	/* Before Linux 6.6 the kernel accepts no PMU type in the config on this machine. */
	pose(false);
	CHECK_EQUAL(sample(), 4 * 8);
	CHECK_SAID(SAMPLE_CPU_CLOCK, "sampled");
	CHECK_SAID(SAMPLE_CYCLES, "sampled");
	CHECK_SAID(SAMPLE_REF_CYCLES, "unsupported: armv8_cortex_a53 has no such event");
	leave();
}

TEST("sampler: where cores are alike cycles show time")
{
	machine.pmus[0] = (struct posed_pmu){ "armv8_pmuv3_0", 8, 0xff, true, true, false };
	machine.online = 0xff;
	pose(false);
	CHECK_EQUAL(sample(), 3 * 8);
	CHECK_SAID(SAMPLE_CPU_CLOCK, "unsupported: cycles are sampled instead");
	leave();
}

/*
 * Simulate a Xeon: fixed counters for ref-cycles, cycles and instructions, and four other counters for each of the two threads of a
 * core.
 */
static void pose_as_xeon(void)
{
	machine.pmus[0] = (struct posed_pmu){ "cpu", 4, 0xff, true, true, true };
	machine.online = 0xff;
	pose(true);
}

TEST("sampler: beside ref-cycles cycles are not sampled where cores are alike, so that perf stat's events find counters")
{
	const json_t *row;

	pose_as_xeon();
	CHECK_EQUAL(sample(), 3 * 8);
	row = json_array_get(json_object_get(sampled, "events"), SAMPLE_REF_CYCLES);
	CHECK(!strcmp(json_string_value(json_object_get(row, "unit")), "ns"));
	CHECK_SAID(SAMPLE_REF_CYCLES, "sampled");
	CHECK_SAID(SAMPLE_CYCLES, "unsupported: ref-cycles are sampled instead");
	CHECK_SAID(SAMPLE_LLC_LOAD_MISSES, "sampled");
	CHECK_SAID(SAMPLE_L1D_LOAD_MISSES, "sampled");
	leave();
}

TEST("sampler: where the kernel does not say how long a ref-cycle is, cycles are sampled to be checked")
{
	machine.no_tsc = true;
	pose_as_xeon();
	CHECK_EQUAL(sample(), 4 * 8);
	CHECK_SAID(SAMPLE_CYCLES, "sampled");
	leave();
}

TEST("sampler: on Zen the misses are lines from memory, and say so")
{
	const json_t *row;

	pose_as_amd();
	CHECK_EQUAL(sample(), 3 * 8);
	CHECK_SAID(SAMPLE_REF_CYCLES, "unsupported: AMD's PMU has no such event");
	CHECK_SAID(SAMPLE_LLC_LOAD_MISSES, "sampled");
	row = json_array_get(json_object_get(sampled, "events"), SAMPLE_LLC_LOAD_MISSES);
	CHECK(strstr(json_string_value(json_object_get(row, "counts")), "r4843"));
	row = json_array_get(json_object_get(sampled, "events"), SAMPLE_CYCLES);
	CHECK(!json_object_get(row, "counts"));
	leave();
}

TEST("sampler: a PMU that does not interrupt gives way to a timer")
{
	pose_as_amd();
	machine.dead = true;
	CHECK_EQUAL(sample(), 8);
	CHECK_SAID(SAMPLE_CPU_CLOCK, "sampled");
	CHECK_SAID(SAMPLE_CYCLES, "unsupported: it opens, but this PMU did not interrupt in 10 ms of work");
	CHECK_SAID(SAMPLE_L1D_LOAD_MISSES, "unsupported: it opens, but this PMU did not interrupt in 10 ms of work");
	leave();
}

TEST("sampler: without a PMU a timer is sampled, and that is the reason")
{
	machine.online = 0x03;
	pose(false);
	CHECK_EQUAL(sample(), 2);
	CHECK_SAID(SAMPLE_CPU_CLOCK, "sampled");
	CHECK_SAID(SAMPLE_CYCLES, "unsupported: this machine has no PMU");
	CHECK_SAID(SAMPLE_L1D_LOAD_MISSES, "unsupported: this machine has no PMU");
	leave();
}

TEST("sampler: no two CPUs have a timer of one rate, and none is far from what was asked for")
{
	machine.online = 0xff;
	pose(false);
	CHECK_EQUAL(sample(), CPUS);
	for (int cpu = 0; cpu < CPUS; cpu++) {
		double rate = machine.rates[SAMPLE_CPU_CLOCK][cpu];

		CHECK(rate >= 0.95 * 199 && rate <= 1.00001 * 199);
		/* The rates differ enough that after a minute two CPUs are at least a tenth of a period apart. */
		for (int other = 0; other < cpu; other++)
			CHECK(fabs(rate - machine.rates[SAMPLE_CPU_CLOCK][other]) > 0.1 / 60);
	}
	leave();
}

TEST("sampler: no event samples on a spared CPU, but events that count open there")
{
	struct cpu_event event = {};
	struct event_row row;
	int opened = 0;

	pose_as_amd();
	CHECK_EQUAL(core_pmus__spare("2-3,6"), 0);
	/* cycles, LLC misses and L1D misses on five CPUs each. */
	CHECK_EQUAL(sample(), 3 * 5);
	for (int cpu = 0; cpu < CPUS; cpu++)
		CHECK_EQUAL(machine.rates[SAMPLE_CYCLES][cpu] > 0, cpu != 2 && cpu != 3 && cpu != 6);
	CHECK_SAID(SAMPLE_CYCLES, "sampled");
	CHECK(pmu__find("LLC-load-misses", &row));
	CHECK_EQUAL(cpu_event__open(&event, &row, CPUS), 0);
	for (int cpu = 0; cpu < CPUS; cpu++)
		if (cpu_event__fd(&event, cpu) >= 0 && ++opened)
			close(cpu_event__fd(&event, cpu));
	CHECK_EQUAL(opened, CPUS);
	free(event.fds);
	free(event.idle_fds);
	CHECK_EQUAL(core_pmus__spare(""), 0);
	CHECK_EQUAL(sample(), 3 * CPUS);
	leave();
}

TEST("sampler: after its spared CPUs change, the events are open on the other CPUs")
{
	struct sampling skel = { .bss = &bss };
	struct sampler *sampler;
	int before;

	machine.online = 0xff;
	pose(false);
	before = open_files();
	CHECK_EQUAL(core_pmus__spare("7"), 0);
	CHECK_EQUAL(sampler__open(&sampler, &skel, 199), 0);
	CHECK_EQUAL(open_files() - before, CPUS - 1);
	CHECK_EQUAL(core_pmus__spare("1-2"), 0);
	CHECK_EQUAL(sampler__reopen(sampler), 0);
	CHECK_EQUAL(open_files() - before, CPUS - 2);
	sampler__close(sampler);
	CHECK_EQUAL(open_files(), before);
	leave();
}

TEST("sampler: the rates of a PMU's events are near what was asked for, too")
{
	pose_as_amd();
	CHECK_EQUAL(sample(), 3 * CPUS);
	for (int cpu = 0; cpu < CPUS; cpu++)
		CHECK(machine.rates[SAMPLE_CYCLES][cpu] >= 0.95 * 199 && machine.rates[SAMPLE_CYCLES][cpu] <= 199);
	leave();
}

TEST("sampler: what sysfs says of PMUs is read once")
{
	char command[128];

	pose_as_hybrid(0xff);
	CHECK_EQUAL(sample(), 3 * 8 + 4);
	snprintf(command, sizeof(command), "rm -r %s/*", machine.root);
	CHECK_EQUAL(system(command), 0);
	CHECK_EQUAL(sample(), 3 * 8 + 4);
	CHECK_SAID(SAMPLE_L1D_LOAD_MISSES, "partial: only on CPUs 0-3: cpu_atom has no such event");
	leave();
}

TEST("cpu_event: what only some cores have is kept there, and the others read zero")
{
	struct cpu_event event = {};
	struct event_row row;

	pose_as_hybrid(0x7d);
	CHECK(pmu__find("L1-dcache-load-misses", &row));
	CHECK_EQUAL(cpu_event__open(&event, &row, CPUS), 0);
	CHECK(event.works && event.partial);
	CHECK(!strcmp(event.covered.cpus, "0,2-3"));
	for (int cpu = 0; cpu < CPUS; cpu++) {
		bool online = 0x7d & 1 << cpu, has_it = 0x0d & 1 << cpu;

		CHECK_EQUAL(event.fds[cpu] >= 0, has_it);
		CHECK_EQUAL(cpu_event__fd(&event, cpu) >= 0, online);
		if (online)
			close(cpu_event__fd(&event, cpu));
	}
	free(event.fds);
	free(event.idle_fds);
	leave();
}

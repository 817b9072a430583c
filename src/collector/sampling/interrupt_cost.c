// SPDX-License-Identifier: GPL-2.0-only
#include "interrupt_cost.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "abi.h"
#include "events.h"
#include "kernel/perf_open.h"
#include "kernel/pmu.h"

/*
 * The thread reads its own memory through /proc/self/mem, which copies in the kernel and is allowed by the seal (seal.h).
 * This memory is larger than L1D, so that each interrupt finds other data there, as it does in the copies of a run.
 */
#define MEMORY_BYTES (1 << 20)
#define BLOCK_BYTES (1 << 16)
#define TIMES 2
/* Pairs of equal work, the first of each pair without interrupts. */
#define PAIRS INTERRUPT_COST_PAIRS
/*
 * Period in cycles: 15,000 interrupts a second at 3 GHz, because the kernel throttles events above its limit, by default
 * 100,000 a second. The other period never ends.
 */
#define PERIOD 200000ULL
#define NO_PERIOD (1ULL << 40)
/* Minimum part of the expected interrupts. Below it the kernel has throttled them, or this PMU hardly interrupts. */
#define INTERRUPTS_MIN 0.8

/* Counts of all events, and the number of interrupts. */
struct counts {
	__u64 events[SAMPLE_CNT];
	__u64 interrupts;
};

static char copied_memory[MEMORY_BYTES];

struct bench {
	struct events leader;
	int members[SAMPLE_CNT];
	int count;
	int memory;
	const volatile __u64 *interrupts;
	struct counts without[PAIRS];
	struct counts with[PAIRS];
};

static int open_counters(struct bench *bench, const struct event_row *const rows[], struct bpf_program *program)
{
	int leader = -1;

	for (int i = 0; i < bench->count; i++) {
		struct perf_event_attr attr = { .size = sizeof(attr), .type = rows[i]->type, .config = rows[i]->config,
						.disabled = !i, .read_format = PERF_FORMAT_GROUP };
		int fd, err = 0;

		/* Only the first event interrupts. */
		attr.sample_period = i ? 0 : NO_PERIOD;
		fd = perf_open_thread(&attr, leader);
		if (fd < 0)
			return fd;
		if (i)
			bench->members[i] = fd;
		else
			err = events__add(&bench->leader, program, leader = fd);
		if (err)
			return err;
	}
	return 0;
}

static int open_memory(struct bench *bench)
{
	/* Written, because unwritten pages are all the same page of zeros. */
	memset(copied_memory, 1, sizeof(copied_memory));
	bench->memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	return bench->memory < 0 ? -errno : 0;
}

static int copy_memory(const struct bench *bench)
{
	static char block[BLOCK_BYTES];

	for (int times = 0; times < TIMES; times++) {
		if (lseek(bench->memory, (off_t)(uintptr_t)copied_memory, SEEK_SET) < 0)
			return -errno;
		for (int at = 0; at < MEMORY_BYTES; at += BLOCK_BYTES)
			if (read(bench->memory, block, BLOCK_BYTES) != BLOCK_BYTES)
				return -EIO;
	}
	return 0;
}

static int read_counters(const struct bench *bench, struct counts *counts)
{
	struct { __u64 count, values[SAMPLE_CNT]; } group;

	counts->interrupts = *bench->interrupts;
	if (read(bench->leader.first->fd, &group, sizeof(group)) < 0)
		return -errno;
	memcpy(counts->events, group.values, sizeof(counts->events));
	return 0;
}

/* Copy with interrupts after each `period`, and count. */
static int count_copies(const struct bench *bench, __u64 period, struct counts *counted)
{
	struct counts before, after;
	int err = ioctl(bench->leader.first->fd, PERF_EVENT_IOC_PERIOD, &period) ? -errno : 0;

	err = err ?: read_counters(bench, &before);
	err = err ?: copy_memory(bench);
	err = err ?: read_counters(bench, &after);
	if (err)
		return err;
	for (int i = 0; i < bench->count; i++)
		counted->events[i] = after.events[i] - before.events[i];
	counted->interrupts = after.interrupts - before.interrupts;
	return 0;
}

static int count_pairs(struct bench *bench)
{
	int err = copy_memory(bench);

	err = err ?: events__switch(&bench->leader, PERF_EVENT_IOC_ENABLE);
	for (int i = 0; i < PAIRS && !err; i++)
		err = count_copies(bench, NO_PERIOD, &bench->without[i]) ?: count_copies(bench, PERIOD, &bench->with[i]);
	return err;
}

static bool interrupted_enough(const struct bench *bench)
{
	double interrupts = 0, expected = 0;

	for (int i = 0; i < PAIRS; i++) {
		interrupts += bench->with[i].interrupts;
		expected += (double)bench->without[i].events[0] / PERIOD;
	}
	return expected > PAIRS && interrupts >= INTERRUPTS_MIN * expected;
}

/* Divide the events that the pairs differ by through their interrupts (ratio estimator, Cochran, 1977). */
static void estimate(const struct bench *bench, int event, struct interrupt_cost *cost)
{
	double extra[PAIRS], all_extra = 0, interrupts = 0, squares = 0;

	for (int i = 0; i < PAIRS; i++) {
		extra[i] = (double)bench->with[i].events[event] - (double)bench->without[i].events[event];
		all_extra += extra[i];
		interrupts += bench->with[i].interrupts;
	}
	cost->mean = all_extra / interrupts;
	for (int i = 0; i < PAIRS; i++) {
		double error = extra[i] - cost->mean * bench->with[i].interrupts;

		squares += error * error;
	}
	cost->deviation = sqrt(squares * PAIRS / (PAIRS - 1)) / interrupts;
}

void interrupt_cost__measure(const struct event_row *const rows[], int count, struct bpf_program *program,
			     const volatile __u64 *interrupts, struct interrupt_cost costs[])
{
	struct bench bench = { .members = { [0 ... SAMPLE_CNT - 1] = -1 }, .count = count, .memory = -1,
			       .interrupts = interrupts };
	int err = open_memory(&bench);

	err = err ?: open_counters(&bench, rows, program);
	err = err ?: count_pairs(&bench);
	for (int i = 0; i < count; i++) {
		if (err)
			snprintf(costs[i].reason, sizeof(costs[i].reason), "test copies: %s", strerror(-err));
		else if (!interrupted_enough(&bench))
			snprintf(costs[i].reason, sizeof(costs[i].reason), "the kernel throttled the interrupts of test copies");
		else
			estimate(&bench, i, &costs[i]);
	}
	for (int i = 0; i < SAMPLE_CNT; i++)
		if (bench.members[i] >= 0)
			close(bench.members[i]);
	events__close(&bench.leader);
	if (bench.memory >= 0)
		close(bench.memory);
}

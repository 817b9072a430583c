// SPDX-License-Identifier: GPL-2.0
#include "read_cost.h"

#include <errno.h>
#include <stdlib.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

/*
 * Of 31 values in order, the 10th and the 22nd hold their median with 95 % (binomial, p = 1/2: ranks below 10 or above 22
 * happen in 3 %).
 */
#define LOW_RANK 10
#define HIGH_RANK 22

static int by_size(const void *left, const void *right)
{
	double difference = *(const double *)left - *(const double *)right;

	return (difference > 0) - (difference < 0);
}

void read_cost__measure(struct read_cost *cost, struct copyscope *skel)
{
	LIBBPF_OPTS(bpf_test_run_opts, options);

	cost->runs = 0;
	for (int run = 0; run < READ_COST_RUNS; run++) {
		/* Raw tracepoint programs can be run since 5.10 (commit 1b4d60ec162f). */
		if (bpf_prog_test_run_opts(bpf_program__fd(skel->progs.on_read_cost), &options)) {
			cost->err = -errno;
			return;
		}
		cost->clock_ns[run] = (double)skel->bss->clock_cost_ns / READ_COST_READS;
		cost->look_ns[run] = (double)skel->bss->look_cost_ns / READ_COST_READS;
		cost->counters_ns[run] = (double)skel->bss->read_cost_ns / READ_COST_READS - cost->clock_ns[run];
		for (int i = 0; i < COUNTERS_MAX; i++)
			cost->counts[i][run] = (double)skel->bss->read_cost_counts[i] / READ_COST_READS;
	}
	for (int i = 0; i < COUNTERS_MAX; i++)
		qsort(cost->counts[i], READ_COST_RUNS, sizeof(double), by_size);
	qsort(cost->clock_ns, READ_COST_RUNS, sizeof(double), by_size);
	qsort(cost->look_ns, READ_COST_RUNS, sizeof(double), by_size);
	qsort(cost->counters_ns, READ_COST_RUNS, sizeof(double), by_size);
	cost->runs = READ_COST_RUNS;
}

json_t *read_cost__json(const struct read_cost *cost, const char *const *names, int events)
{
	json_t *added = json_array();

	for (int i = 0; i < events; i++)
		json_array_append_new(added, json_pack("{s:s, s:f, s:f, s:f}", "name", names[i],
			"count", cost->counts[i][READ_COST_RUNS / 2],
			"low", cost->counts[i][LOW_RANK - 1], "high", cost->counts[i][HIGH_RANK - 1]));
	return json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:o}", "reads", cost->runs * READ_COST_READS, "events", events,
			 "median_ns", cost->counters_ns[READ_COST_RUNS / 2],
			 "low_ns", cost->counters_ns[LOW_RANK - 1], "high_ns", cost->counters_ns[HIGH_RANK - 1],
			 "clock_ns", cost->clock_ns[READ_COST_RUNS / 2],
			 "look_ns", cost->look_ns[READ_COST_RUNS / 2], "added", added);
}

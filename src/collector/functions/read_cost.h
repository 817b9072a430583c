/* SPDX-License-Identifier: GPL-2.0 */
/* read_cost.h - what one look at the clock and the counters costs, measured by running the program on_read_cost. */
#ifndef COLLECTOR_READ_COST_H
#define COLLECTOR_READ_COST_H

#include <jansson.h>

#include "abi.h"

struct copyscope;

/* Odd, so that there is a middle one. */
#define READ_COST_RUNS 31

struct read_cost {
	/* 0: it could not be measured, for this reason (-errno). */
	int runs;
	int err;
	/* Per look: the clock alone, what the counters add, and all that a timed call does with it; each sorted. */
	double clock_ns[READ_COST_RUNS];
	double look_ns[READ_COST_RUNS];
	double counters_ns[READ_COST_RUNS];
	/* What a look adds to each counter that works, in the order of its place among them; sorted. */
	double counts[COUNTERS_MAX][READ_COST_RUNS];
};

void read_cost__measure(struct read_cost *cost, struct copyscope *skel);
/* The medians and their 95 % intervals; `names` are those of the counters that work. */
json_t *read_cost__json(const struct read_cost *cost, const char *const *names, int events);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/* read_cost.h - what one look at the counters costs, measured by running the program on_read_cost. */
#ifndef COLLECTOR_READ_COST_H
#define COLLECTOR_READ_COST_H

#include <jansson.h>

struct copyscope;

/* Odd, so that there is a middle one. */
#define READ_COST_RUNS 31

struct read_cost {
	/* 0: it could not be measured, for this reason (-errno). */
	int runs;
	int err;
	/* Per look: the clock alone, and what the counters add; each sorted. */
	double clock_ns[READ_COST_RUNS];
	double counters_ns[READ_COST_RUNS];
};

void read_cost__measure(struct read_cost *cost, struct copyscope *skel);
/* The median and its 95 % interval. */
json_t *read_cost__json(const struct read_cost *cost, int events);

#endif

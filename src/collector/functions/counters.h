/* SPDX-License-Identifier: GPL-2.0 */
/*
 * counters.h - the perf events that the function programs read with the clock (bpf/counters.bpf.h): up to COUNTERS_MAX,
 * one of each on every CPU.
 */
#ifndef COLLECTOR_COUNTERS_H
#define COLLECTOR_COUNTERS_H

#include <stdbool.h>

#include <jansson.h>
#include <linux/types.h>

struct copyscope;
struct counters;

/* Is it a comma list of at most COUNTERS_MAX events that can be counted? */
bool counters__valid(const char *list);
/*
 * Opens the events of a valid list (NULL: the usual one) and tries whether they count. One that does not is left out and
 * says why in the report. Returns 0 or -ENOMEM.
 */
int counters__new(struct counters **counters, const char *list);
/* How many of them work. NULL: none was asked for. */
int counters__count(const struct counters *counters);
/*
 * Before load: how many programs will read, and whether to load the one that measures what this costs; after it: the events
 * for them to read.
 */
void counters__prepare(const struct counters *counters, struct copyscope *skel, bool read_cost);
int counters__install(const struct counters *counters, struct copyscope *skel);
void counters__switch(const struct counters *counters, bool on);
/* Runs on_read_cost. A kernel that cannot run it says so in the report. */
void counters__measure_cost(struct counters *counters, struct copyscope *skel);
/* {"<event>": sum} of those that work. */
json_t *counters__values_json(const struct counters *counters, const __u64 *values);
/* [{"name", "unit", "status", "reason", "running"}] */
json_t *counters__events_json(const struct counters *counters);
/* {"reads", "events", "look_ns", "low_ns", "high_ns"}, or null when it could not be run. */
json_t *counters__cost_json(const struct counters *counters);
void counters__free(struct counters *counters);

#endif

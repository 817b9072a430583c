/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * counters.h - perf events that the function programs read whenever they read the clock (bpf/counters.bpf.h): up to
 * COUNTERS_MAX, each opened on every CPU.
 */
#ifndef COLLECTOR_COUNTERS_H
#define COLLECTOR_COUNTERS_H

#include <stdbool.h>

#include <jansson.h>
#include <linux/types.h>

struct copyscope;
struct counters;

/* Return true for a comma-separated list of at most COUNTERS_MAX known events. */
bool counters__valid(const char *list);
/*
 * Open the events of a valid list (NULL: the default) and test whether they count. An event that does not count is left
 * out, and the report says why. Return 0 or -ENOMEM.
 */
int counters__new(struct counters **counters, const char *list);
/* Return the number of events that work. `counters` is NULL if no events were requested. */
int counters__count(const struct counters *counters);
/*
 * counters__prepare(), before loading: set the number of events that programs read, and whether to load the program
 * that measures the cost of reading. counters__install(), after loading: put the events into the map.
 */
void counters__prepare(const struct counters *counters, struct copyscope *skel, bool read_cost);
int counters__install(const struct counters *counters, struct copyscope *skel);
void counters__switch(const struct counters *counters, bool on);
/* Run on_read_cost. If the kernel cannot run it, the report has no read cost. */
void counters__measure_cost(struct counters *counters, struct copyscope *skel);
/* Return {"<event>": sum} for the events that work. */
json_t *counters__values_json(const struct counters *counters, const __u64 *values);
/* Return [{"name", "unit", "status", "reason", "running"}]. */
json_t *counters__events_json(const struct counters *counters);
/* Return {"reads", "events", "look_ns", "low_ns", "high_ns"}, or null if the cost could not be measured. */
json_t *counters__cost_json(const struct counters *counters);
void counters__free(struct counters *counters);

#endif

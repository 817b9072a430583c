/* SPDX-License-Identifier: GPL-2.0 */
/*
 * sampler.h - the perf events that drive the stack sampler.
 *
 * Where there is a PMU its events interrupt every CPU, all the time: they do not count in idle.
 *
 * Elsewhere cpu-clock does, a timer. Two things about timers shape this file (docs/dev/notes.md has the figures):
 * - One per CPU misses a process that wakes up on an idle CPU and runs in short bursts: its interrupt comes after the
 *   burst. So each thread of a target has its own event (thread_timers.h), which keeps the rest of its period across
 *   switches, and one per CPU covers all other tasks.
 * - A thread that has one, or had one while anybody has any, is dearer to switch. On CPUs that are never idle those of
 *   the CPUs see a watched program as well (user space looks, busy_cpus.py). Of one that is switched seldom the timers of its
 *   threads stay between bursts (timers.py): a new one begins with a whole period, which is more than such a thread may do.
 * - An armed timer makes each sleep and wake-up dearer, whatever its frequency. So the timers of a process that sleeps
 *   often are armed in bursts (bursts.h): 10 kHz for 5 ms, then a random rest such that the average is the frequency that
 *   was asked for.
 */
#ifndef COLLECTOR_SAMPLER_H
#define COLLECTOR_SAMPLER_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "abi.h"

struct sampling;
struct sampler;
struct watch;
struct watched_map;

/* Says whose packets the CPUs handle, which is asked while tasks that are no targets are sampled; 0 or -errno. */
struct packet_watch {
	void *context;
	int (*watch)(void *context, bool on);
};

/* Whose timers sample a watched program. */
enum timers {
	/* Those of its threads, there for a burst; a new one begins with a whole period. */
	TIMERS_OF_BURSTS,
	/* Those of its threads, which stay between bursts: what is left of a period is kept. */
	TIMERS_OF_THREADS,
	TIMERS_OF_CPUS,
};

/* Loads the programs. watch: NULL for our own traffic. Returns 0 or -errno. */
int sampler__load(struct sampling **skel, const struct watch *watch);
/*
 * Opens what this machine has: for the processes in `watched` (by `timers`), or where that is NULL, for those of
 * skel->bss->target_tgid. An event that cannot be opened says why in the report. Nothing counts before
 * sampler__enable(), and none of the packets is looked at. Returns 0, or -errno when no event at all can be opened.
 */
int sampler__open(struct sampler **sampler, struct sampling *skel, unsigned int frequency_hz,
		  const struct watched_map *watched, enum timers timers, const struct packet_watch *packets);
/* How a watched program is sampled from the next segment on. */
void sampler__choose(struct sampler *sampler, enum timers timers);
/* counted: whether the report's times and bursts are of this segment, too. */
int sampler__enable(struct sampler *sampler, bool counted);
int sampler__disable(struct sampler *sampler);
/* What one ns of a side's sampled cpu-clock stands for: time enabled / time armed, over all segments so far. */
double sampler__scale(const struct sampler *sampler, enum side side);
/*
 * {"frequency_hz", "enabled_ns", "bursts": {side: {"period_ns", "armed_ns", "cpu_ns", "difference_us_squared", "count",
 * "samples", "samples_squared"}},
 * "events": [{name, unit, status, reason}]}
 */
json_t *sampler__json(const struct sampler *sampler);
/* {"count", "of"} of the threads that had no timer, at the time when they were most; sampler may be NULL. */
json_t *sampler__loss_json(const struct sampler *sampler);
void sampler__close(struct sampler *sampler);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * sampler.h - the perf events that drive the stack sampler.
 *
 * One event per CPU, as `perf record -a` opens them: ref-cycles or cycles where there is a PMU, cpu-clock (a timer)
 * elsewhere. They run all the time while the sampler is enabled. The program behind an event asks whose task it has
 * interrupted.
 */
#ifndef COLLECTOR_SAMPLER_H
#define COLLECTOR_SAMPLER_H

#include <jansson.h>

#include "abi.h"

struct sampling;
struct sampler;
struct watch;

/* Loads the programs. watch: NULL for our own traffic. Returns 0 or -errno. */
int sampler__load(struct sampling **skel, const struct watch *watch);
/*
 * Opens what this machine has. An event that cannot be opened says why in the report. Nothing counts before
 * sampler__enable(). Returns 0, or -errno when no event that shows time can be opened.
 */
int sampler__open(struct sampler **sampler, struct sampling *skel, unsigned int frequency_hz);
int sampler__enable(struct sampler *sampler);
int sampler__disable(struct sampler *sampler);
/* {"frequency_hz", "enabled_ns", "events": [{name, unit, status, reason, counts}]} */
json_t *sampler__json(const struct sampler *sampler);
/* What a weight of 1 is in the unit that sampler__json() says. */
double sampler__weight_unit(const struct sampler *sampler, enum sample_event event);
void sampler__close(struct sampler *sampler);

#endif

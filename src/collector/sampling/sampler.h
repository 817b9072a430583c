/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * sampler.h - perf events that drive the stack sampler.
 *
 * There is one event per CPU, as in `perf record -a`: ref-cycles or cycles if there is a PMU, otherwise cpu-clock (a
 * timer). The events run while the sampler is enabled. The event's program determines which task was interrupted.
 */
#ifndef COLLECTOR_SAMPLER_H
#define COLLECTOR_SAMPLER_H

#include <jansson.h>

#include "abi.h"

struct sampling;
struct sampler;
struct watch;

/* Load the programs. watch: NULL for our own traffic. Return 0 or -errno. */
int sampler__load(struct sampling **skel, const struct watch *watch);
/*
 * Open the events that this machine supports. The report has a reason for each other event. Nothing counts before
 * sampler__enable(). Return 0, or -errno if no event that measures time can be opened.
 */
int sampler__open(struct sampler **sampler, struct sampling *skel, unsigned int frequency_hz);
/* Open the events again, after core_pmus__spare(). The sampler must be disabled. Return 0 or -errno. */
int sampler__reopen(struct sampler *sampler);
int sampler__enable(struct sampler *sampler);
int sampler__disable(struct sampler *sampler);
/* Return {"frequency_hz", "enabled_ns", "events": [{name, unit, status, reason, counts, per_interrupt}]}. */
json_t *sampler__json(const struct sampler *sampler);
/* Return the factor that converts a weight to the unit in sampler__json(). */
double sampler__weight_unit(const struct sampler *sampler, enum sample_event event);
void sampler__close(struct sampler *sampler);

#endif

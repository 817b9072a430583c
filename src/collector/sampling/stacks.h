/* SPDX-License-Identifier: GPL-2.0 */
/* stacks.h - sampled stacks by function name: drained from the BPF map, merged, emitted as JSON. */
#ifndef COLLECTOR_STACKS_H
#define COLLECTOR_STACKS_H

#include <jansson.h>

#include "kernel/ksyms.h"

struct stacks;

int stacks__new(struct stacks **stacks);
/*
 * Moves every stack out of the map (key u64, value struct stack_cell) into `stacks`.
 * Memory stays flat over long runs: stacks of equal functions are merged.
 * Returns the number of samples moved or -errno.
 */
int stacks__drain(struct stacks *stacks, int map_fd, const struct ksyms *ksyms);
/*
 * [{side, event, frames[leaf..root], samples, weight}], in a fixed order. The weight of cpu-clock samples is multiplied
 * by the scale of their side (see sampler__scale()). NULL: out of memory.
 */
json_t *stacks__json(struct stacks *stacks, const struct ksyms *ksyms, const double *scales);
/* The same of what came since this was asked last: on a busy machine thousands of stacks do not come again. */
json_t *stacks__news_json(struct stacks *stacks, const struct ksyms *ksyms, const double *scales);
void stacks__free(struct stacks *stacks);

#endif

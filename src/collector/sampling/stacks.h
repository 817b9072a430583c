/* SPDX-License-Identifier: GPL-2.0-only */
/* stacks.h - sampled stacks by function name: reads them from the BPF map, merges them and prints them as JSON. */
#ifndef COLLECTOR_STACKS_H
#define COLLECTOR_STACKS_H

#include <stdbool.h>

#include <jansson.h>

#include "kernel/ksyms.h"

struct sampler;
struct stacks;

int stacks__new(struct stacks **stacks);
/*
 * Move every stack from the map (key u64, value struct stack_cell) to `stacks`. Stacks with equal functions are
 * merged, so that memory stays constant over long runs. Return 0 or -errno.
 */
int stacks__drain(struct stacks *stacks, int map_fd, const struct ksyms *ksyms);
/*
 * Return [{side, event, frames[leaf..root], samples, weight, weight_squared}] in a fixed order, or NULL if out of
 * memory. For a watched program in user mode, `frames` is empty, and `pid` and `address` are the process and the
 * location. only_new: return only stacks and samples that were added since the previous call, because on a busy machine
 * thousands of stacks do not recur.
 */
json_t *stacks__json(struct stacks *stacks, const struct ksyms *ksyms, const struct sampler *sampler, bool only_new);
/* Discard all stacks. */
void stacks__forget(struct stacks *stacks);
void stacks__free(struct stacks *stacks);

#endif

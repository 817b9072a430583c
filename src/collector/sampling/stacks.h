/* SPDX-License-Identifier: GPL-2.0 */
/* stacks.h - sampled stacks by function name: drained from the BPF map, merged, emitted as JSON. */
#ifndef COLLECTOR_STACKS_H
#define COLLECTOR_STACKS_H

#include <stdbool.h>

#include <jansson.h>

#include "kernel/ksyms.h"

struct sampler;
struct stacks;

int stacks__new(struct stacks **stacks);
/*
 * Moves every stack out of the map (key u64, value struct stack_cell) into `stacks`.
 * Memory stays flat over long runs: stacks of equal functions are merged.
 * Returns 0 or a negative errno.
 */
int stacks__drain(struct stacks *stacks, int map_fd, const struct ksyms *ksyms);
/*
 * [{side, event, frames[leaf..root], samples, weight, weight_squared}], in a fixed order; where a watched program was in user mode
 * `frames` is empty, and `pid` and `address` say in which process and where. NULL: out of memory. `news`: only of what came since
 * this was asked last, because on a busy machine thousands of stacks do not come again.
 */
json_t *stacks__json(struct stacks *stacks, const struct ksyms *ksyms, const struct sampler *sampler, bool news);
/* All that was moved into it. */
void stacks__forget(struct stacks *stacks);
void stacks__free(struct stacks *stacks);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * zerocopy.h - hooks on the life of a zero-copy send. Part of the instrument `functions`: either all are attached or
 * none.
 */
#ifndef COLLECTOR_ZEROCOPY_H
#define COLLECTOR_ZEROCOPY_H

#include <stdbool.h>

#include <jansson.h>

#include "attach/attach.h"

struct copyscope;
struct zerocopy;

/* Look up the symbols. Return 0 or -errno. */
int zerocopy__new(struct zerocopy **zerocopy, const struct attach_sources *sources, enum attach_wish wish,
		  unsigned int moves);
/* Return true if the hooks are to be loaded. */
bool zerocopy__is_ready(const struct zerocopy *zerocopy);
/* Before loading: select the programs and their types, or leave them out. Return 0 or -errno. */
int zerocopy__prepare(struct zerocopy *zerocopy, struct copyscope *skel, bool load);
/*
 * Handle hooks that the kernel refused to load. Hooks that use the first hook method try the next one (still READY), or
 * become REFUSED.
 */
void zerocopy__refuse(struct zerocopy *zerocopy, int err);
/* Handle hooks of one hook method that the kernel refused. `doing` is as in attach__refuse(). */
void zerocopy__refuse_way(struct zerocopy *zerocopy, enum attach_way way, const char *doing, int err);
/* Attach the hooks. On failure only their own results are missing, and the hooks have the reason. */
void zerocopy__attach(struct zerocopy *zerocopy);
int zerocopy__detach(struct zerocopy *zerocopy);
/*
 * Discard the state of sends that are still running, because their start or their end is not seen. Return 0 or -errno.
 */
int zerocopy__forget(struct copyscope *skel);
/* Append rows to the record's hooks[], and the calls that the programs missed to loss{}. */
void zerocopy__add_hooks(const struct zerocopy *zerocopy, json_t *hooks);
void zerocopy__add_loss(const struct zerocopy *zerocopy, json_t *loss);
/* Add "owners", "completions" and "completion_latency" to the record's functions{}; null without the hooks. */
void zerocopy__add_json(const struct zerocopy *zerocopy, const struct copyscope *skel, json_t *functions);
void zerocopy__free(struct zerocopy *zerocopy);

#endif

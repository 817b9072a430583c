/* SPDX-License-Identifier: GPL-2.0 */
/* zerocopy.h - the hooks on the life of a zero-copy send: a part of the instrument functions, all of them or none. */
#ifndef COLLECTOR_ZEROCOPY_H
#define COLLECTOR_ZEROCOPY_H

#include <stdbool.h>

#include <jansson.h>

#include "attach/attach.h"

struct copyscope;
struct zerocopy;

/* Looks the symbols up. Returns 0 or -errno. */
int zerocopy__new(struct zerocopy **zerocopy, const struct attach_sources *sources, enum attach_wish wish,
		  unsigned int moves);
/* Are they to be loaded at all? */
bool zerocopy__is_ready(const struct zerocopy *zerocopy);
/* Before load: chooses programs and their types, or leaves them out. Returns 0 or -errno. */
int zerocopy__prepare(struct zerocopy *zerocopy, struct copyscope *skel, bool load);
/* The kernel did not load them: those of the first way are by another next (still ready), or refused. */
void zerocopy__refuse(struct zerocopy *zerocopy, int err);
/* The kernel did not take those that are hooked in one way (doing: attach__refuse()). */
void zerocopy__refuse_way(struct zerocopy *zerocopy, enum attach_way way, const char *doing, int err);
/* A failure costs its own results only; the hooks say why. */
void zerocopy__attach(struct zerocopy *zerocopy);
int zerocopy__detach(struct zerocopy *zerocopy);
/* Sends that are under way: their end will not be seen, or their begin was not. Returns 0 or -errno. */
int zerocopy__forget(struct copyscope *skel);
/* Appends the record's hooks[] rows, and what the programs missed to loss{}. */
void zerocopy__add_hooks(const struct zerocopy *zerocopy, json_t *hooks);
void zerocopy__add_loss(const struct zerocopy *zerocopy, json_t *loss);
/* Adds to the record's functions{} "owners", "completions" and "completion_latency"; null without the hooks. */
void zerocopy__add_json(const struct zerocopy *zerocopy, const struct copyscope *skel, json_t *functions);
void zerocopy__free(struct zerocopy *zerocopy);

#endif

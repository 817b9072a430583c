/* SPDX-License-Identifier: GPL-2.0 */
/* zerocopy.h - the hooks on the life of a zero-copy send: a part of the instrument functions, all of them or none. */
#ifndef COLLECTOR_ZEROCOPY_H
#define COLLECTOR_ZEROCOPY_H

#include <stdbool.h>

#include <jansson.h>

struct btf;
struct copyscope;
struct zerocopy;

/* Looks the symbols up. wanted: false leaves all unused. Returns 0 or -errno. */
int zerocopy__new(struct zerocopy **zerocopy, const struct btf *btf, bool wanted);
/* Are they to be loaded at all? */
bool zerocopy__is_ready(const struct zerocopy *zerocopy);
/* Before load: sets the attach targets, or leaves the programs out. */
void zerocopy__prepare(const struct zerocopy *zerocopy, struct copyscope *skel, bool load);
/* The kernel did not take them. */
void zerocopy__refuse(struct zerocopy *zerocopy, int err);
/* A failure costs its own results only; the hooks say why. */
void zerocopy__attach(struct zerocopy *zerocopy, struct copyscope *skel);
int zerocopy__detach(struct zerocopy *zerocopy, struct copyscope *skel);
/* Appends the record's hooks[] rows, and what the programs missed to loss{}. */
void zerocopy__add_hooks(const struct zerocopy *zerocopy, json_t *hooks);
void zerocopy__add_loss(const struct zerocopy *zerocopy, struct copyscope *skel, json_t *loss);
/*
 * Adds to the record's functions{}: "owners": [{owner_side, current_side, context, calls, bytes}],
 * "completions": [{side, copied, zerocopied}], "completion_latency": [{side, count, before_return, histogram}]; null
 * without the hooks.
 */
void zerocopy__add_json(const struct zerocopy *zerocopy, const struct copyscope *skel, json_t *functions);
void zerocopy__free(struct zerocopy *zerocopy);

#endif

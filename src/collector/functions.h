/* SPDX-License-Identifier: GPL-2.0 */
/* functions.h - the function hooks: find, load, attach (function_hooks.c), and read what they counted (functions.c). */
#ifndef COLLECTOR_FUNCTIONS_H
#define COLLECTOR_FUNCTIONS_H

#include <jansson.h>

#include "attach.h"

struct btf;
struct copyscope;
struct functions;
struct zerocopy;

/* Looks every row's candidates up. ATTACH_NOTHING leaves all rows unused. Returns 0 or -errno. */
int functions__new(struct functions **functions, const struct btf *btf, enum attach_wish wish);
#define FUNCTIONS_ALL -1
#define FUNCTIONS_NONE -2
/* Before load: chooses programs and their types for all rows that are ready, for one of them, or for none. */
int functions__prepare(struct functions *functions, struct copyscope *skel, int only);
/* The next row at or after this one that is to be loaded; -1 after the last. */
int functions__next(const struct functions *functions, int row);
/* The kernel did not load it: it is to be loaded as a kprobe next, or not at all. */
void functions__refuse(struct functions *functions, int row, int err);
/*
 * Attaches all that were loaded, for a moment. Returns how many were refused: they are hooked in another way after the
 * next load, or have a reason.
 */
int functions__try(struct functions *functions, struct copyscope *skel);
/* Attaches all that were loaded; -ENOENT, with a complaint, when the root of the sends or of the receives is missing. */
int functions__attach(struct functions *functions, struct copyscope *skel);
int functions__detach(struct functions *functions, struct copyscope *skel);
/* Appends the record's hooks[] rows. */
void functions__add_hooks(const struct functions *functions, json_t *hooks);
/* Adds to the record's loss{}: programs that were skipped, probes that did not fire. */
void functions__add_losses(const struct functions *functions, struct copyscope *skel, json_t *loss);
/*
 * {"cells": [{side, context, category, calls, bytes, self_ns}], "roots": [{side, calls, inclusive_ns}]}, and what
 * zerocopy.h adds.
 */
json_t *functions__json(const struct functions *functions, const struct copyscope *skel);
/* The hooks on zero-copy's life, which are switched with the others. */
const struct zerocopy *functions__zerocopy(const struct functions *functions);
void functions__free(struct functions *functions);

#endif

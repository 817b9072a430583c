/* SPDX-License-Identifier: GPL-2.0 */
/* functions.h - the function hooks: find the symbols, load what is taken, attach, read the cells. */
#ifndef COLLECTOR_FUNCTIONS_H
#define COLLECTOR_FUNCTIONS_H

#include <stdbool.h>

#include <jansson.h>

struct btf;
struct copyscope;
struct functions;

/* Looks every row's candidates up. wanted: false leaves all rows unused. Returns 0 or -errno. */
int functions__new(struct functions **functions, const struct btf *btf, bool wanted);
int functions__count(void);
#define FUNCTIONS_ALL -1
/* Before load: sets the attach targets of the rows that are to be loaded: all that are ready, or one of them. */
void functions__prepare(struct functions *functions, struct copyscope *skel, int only);
/* Is the row to be loaded at all? */
bool functions__is_ready(const struct functions *functions, int row);
/* The kernel did not take it. */
void functions__refuse(struct functions *functions, int row, int err);
/* Attaches all that were loaded; -ENOENT, with a complaint, when there is not even one root. */
int functions__attach(struct functions *functions, struct copyscope *skel);
int functions__detach(struct functions *functions, struct copyscope *skel);
/* Appends the record's hooks[] rows. */
void functions__add_hooks(const struct functions *functions, json_t *hooks);
/* Adds what the programs missed to the record's loss{}. */
void functions__add_loss(const struct functions *functions, struct copyscope *skel, json_t *loss);
/*
 * {"cells": [{side, context, category, calls, bytes, self_ns}], "roots": [{side, calls, inclusive_ns}]}, and what
 * zerocopy.h adds.
 */
json_t *functions__json(const struct functions *functions, const struct copyscope *skel);
void functions__free(struct functions *functions);

#endif

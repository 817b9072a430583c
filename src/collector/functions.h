/* SPDX-License-Identifier: GPL-2.0 */
/* functions.h - the function hooks: find the symbols, load what is taken, attach, read the cells. */
#ifndef COLLECTOR_FUNCTIONS_H
#define COLLECTOR_FUNCTIONS_H

#include <stdbool.h>

#include <jansson.h>

struct btf;
struct copyscope;
struct functions;

struct functions_options {
	/* Of the sends, receives and softirqs of a thread one in so many is timed; seed: which ones. */
	unsigned int gate_one_in;
	unsigned long long seed;
	/* What is read with the clock (counters.h). */
	const char *count;
};

/* Looks every row's candidates up. options: NULL leaves all rows unused. Returns 0 or -errno. */
int functions__new(struct functions **functions, const struct btf *btf, const struct functions_options *options);
int functions__count(void);
#define FUNCTIONS_ALL -1
/* Only the program that measures what reading the counters costs. */
#define FUNCTIONS_READ_COST -3
/* Before load: sets the attach targets of the rows that are to be loaded: all that are ready, or one of them. */
void functions__prepare(struct functions *functions, struct copyscope *skel, int only);
/* Is the row to be loaded at all? */
bool functions__is_ready(const struct functions *functions, int row);
/* The kernel did not take it. */
void functions__refuse(struct functions *functions, int row, int err);
void functions__refuse_read_cost(struct functions *functions);
/* After load: gives the programs their counters, and measures what reading them costs. */
int functions__install(struct functions *functions, struct copyscope *skel);
/* Attaches all that were loaded; -ENOENT, with a complaint, when there is not even one root. */
int functions__attach(struct functions *functions, struct copyscope *skel);
int functions__detach(struct functions *functions, struct copyscope *skel);
/* Appends the record's hooks[] rows. */
void functions__add_hooks(const struct functions *functions, json_t *hooks);
/*
 * {"cells": [{side, context, category, calls, bytes, timed_calls, self_ns, self_ns_squared, counters}],
 *  "roots": [{side, calls, timed_calls, inclusive_ns, counters}], "gate", "events", "read_cost"}
 * Times and counters are those of the timed calls.
 */
json_t *functions__json(const struct functions *functions, const struct copyscope *skel);
void functions__free(struct functions *functions);

#endif

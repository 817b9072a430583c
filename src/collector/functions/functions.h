/* SPDX-License-Identifier: GPL-2.0 */
/* functions.h - the function hooks: which are used, find, load, attach; what became of them, and what they counted. */
#ifndef COLLECTOR_FUNCTIONS_H
#define COLLECTOR_FUNCTIONS_H

#include <jansson.h>

#include "attach/attach.h"

struct btf;
struct copyscope;
struct counters;
struct functions;

/* How the copy into the kernel is seen; COPY_IN_ANY is by bracket where that is fentry, else at the call where it can be found. */
enum copy_in_wish { COPY_IN_ANY, COPY_IN_BRACKET, COPY_IN_CALL_SITE };

struct functions_options {
	/* ATTACH_NOTHING leaves all rows unused. */
	enum attach_wish attach;
	enum copy_in_wish copy_in;
	/* Rows that others alone use are left out (enum moves). */
	unsigned int moves;
	/* Of the copies of a thread one in so many is timed; seed: which ones. */
	unsigned int gate_one_in;
	unsigned long long seed;
	/* What is read with the clock (counters.h). */
	const char *count;
};

/* What a list such as `zerocopy,tls` says of the bytes, which may be empty; false: something unknown, or twice. */
bool functions__read_moves(const char *list, unsigned int *moves);
/* Looks every row's candidates up. Returns 0 or -errno. */
int functions__new(struct functions **functions, const struct btf *btf, const struct functions_options *options);
#define FUNCTIONS_ALL -1
#define FUNCTIONS_NONE -2
/* Only the program that measures what reading the counters costs. */
#define FUNCTIONS_READ_COST -3
/* Before load: chooses programs and their types for all rows that are ready, for one of them, or for none. */
int functions__prepare(struct functions *functions, struct copyscope *skel, int only);
void functions__refuse_read_cost(struct functions *functions);
/* After load: gives the programs their counters, and measures what reading them costs. */
int functions__install(struct functions *functions, struct copyscope *skel);
/* The next row at or after this one that is to be loaded; -1 after the last. */
int functions__next(const struct functions *functions, int row);
/* The kernel did not load it: it is to be loaded as a kprobe next, or not at all. */
void functions__refuse(struct functions *functions, int row, int err);
/*
 * Attaches one that was loaded by fentry and one by kprobe, for a moment: some kernels load what they do not attach.
 * Returns how many were refused: they are hooked in another way after the next load, or have a reason.
 */
int functions__try(struct functions *functions);
/* Attaches all that were loaded; -ENOENT, with a complaint, when the root of the sends or of the receives is missing. */
int functions__attach(struct functions *functions);
int functions__detach(struct functions *functions);
/* Before functions_on is set: what they knew of calls that are under way is forgotten, and the counters count. And after it is not. */
int functions__arm(struct functions *functions, struct copyscope *skel);
int functions__disarm(struct functions *functions, struct copyscope *skel);
/*
 * While they are not armed: from now on one in so many is timed, and what was counted so far is forgotten. 0 or -errno.
 */
int functions__gate(struct functions *functions, struct copyscope *skel, unsigned int one_in);
/* Appends the record's hooks[] rows. */
void functions__add_hooks(const struct functions *functions, json_t *hooks);
/* Appends to the record's loss{}: programs that were skipped, probes that did not fire. */
void functions__add_losses(const struct functions *functions, json_t *loss);
/*
 * {"cells": [{side, context, category, calls, bytes, timed_calls, self_ns, self_ns_squared, counters}],
 *  "gate", "events", "read_cost"}
 * Times and counters are those of the timed calls.
 */
json_t *functions__json(const struct functions *functions, const struct copyscope *skel);
void functions__free(struct functions *functions);

#endif

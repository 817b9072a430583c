/* SPDX-License-Identifier: GPL-2.0-only */
/* functions.h - function hooks: selects, loads and attaches them, and reports their states and counts. */
#ifndef COLLECTOR_FUNCTIONS_H
#define COLLECTOR_FUNCTIONS_H

#include <jansson.h>

#include "attach/attach.h"

struct btf;
struct copyscope;
struct counters;
struct functions;

/*
 * How to measure the copy into the kernel. A bracket is a pair of hooks around the copy. COPY_IN_ANY uses the
 * bracket. If the bracket needs a plain kprobe, COPY_IN_ANY uses the call site instead, if the call can be found.
 */
enum copy_in_wish { COPY_IN_ANY, COPY_IN_BRACKET, COPY_IN_CALL_SITE };

struct functions_options {
	/* ATTACH_NOTHING leaves all rows unused. */
	enum attach_wish attach;
	enum copy_in_wish copy_in;
	/* Ways in which bytes move (enum moves). Rows for other ways are left out. */
	unsigned int moves;
	/* Time one in gate_one_in copies of each thread; `seed` determines which. */
	unsigned int gate_one_in;
	unsigned long long seed;
	/* Events to read with the clock (counters.h). */
	const char *count;
};

/* Parse a list such as `zerocopy,tls`, which may be empty. Return false for an unknown or repeated word. */
bool functions__read_moves(const char *list, unsigned int *moves);
/* Look up the candidates of every row. Return 0 or -errno. */
int functions__new(struct functions **functions, const struct btf *btf, const struct functions_options *options);
#define FUNCTIONS_ALL -1
#define FUNCTIONS_NONE -2
/* Load only the program that measures the cost of reading the counters. */
#define FUNCTIONS_READ_COST -3
/* Before loading: select the programs and their types for all READY rows, for one row, or for none. */
int functions__prepare(struct functions *functions, struct copyscope *skel, int only);
void functions__refuse_read_cost(struct functions *functions);
/* After loading: give the programs their counters, and measure the cost of reading them. */
int functions__install(struct functions *functions, struct copyscope *skel);
/* Return the next row to load, at or after `row`; -1 after the last. */
int functions__next(const struct functions *functions, int row);
/* Handle a row that the kernel refused to load: the next load tries the row's next hook method, or leaves it out. */
void functions__refuse(struct functions *functions, int row, int err);
/*
 * Attach one loaded function per hook method for a moment, because some kernels load programs that they refuse to
 * attach. Return the number of refused functions. The next load tries another method for a refused function, or
 * records the reason.
 */
int functions__try(struct functions *functions);
/*
 * Attach everything that was loaded. Return -ENOENT and print an error if the hook on the send function or on the
 * receive function is missing.
 */
int functions__attach(struct functions *functions);
int functions__detach(struct functions *functions);
/*
 * Call functions__arm() before functions_on is set: it discards the state of calls that are still running, and starts
 * the counters. Call functions__disarm() after functions_on is cleared.
 */
int functions__arm(struct functions *functions, struct copyscope *skel);
int functions__disarm(struct functions *functions, struct copyscope *skel);
/* Time one in `one_in` copies from now on, and reset all counts. Call this only while disarmed. Return 0 or -errno. */
int functions__gate(struct functions *functions, struct copyscope *skel, unsigned int one_in);
/* Append the record's hooks[] rows. */
void functions__add_hooks(const struct functions *functions, json_t *hooks);
/* Append skipped programs and missed probes to the record's loss{}. */
void functions__add_losses(const struct functions *functions, json_t *loss);
/*
 * Return {"cells": [{side, context, category, calls, bytes, timed_calls, self_ns, self_ns_squared, counters}],
 * "gate", "events", "read_cost", ...}, with the keys of zerocopy__add_json(). Times and counters belong to the timed
 * calls.
 */
json_t *functions__json(const struct functions *functions, const struct copyscope *skel);
void functions__free(struct functions *functions);

#endif

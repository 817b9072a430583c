/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_STRATEGY_H
#define TRAFFIC_STRATEGY_H

#include <stdbool.h>
#include <stddef.h>

#include "flow.h"

/* Copies of each byte on the sending side as the strategy promises them; the ledger tells the truth. */
struct strategy_claim {
	unsigned int user_copies;
	unsigned int kernel_copies;
	const char *what;
};

/*
 * One way to send a message. A file in strategies/ defines one of these, named strategy_<file name>;
 * the build finds it by its name, and nothing else in the program knows it.
 *
 * All functions return 0 or -errno (with the reason in flow->failure). `open` also runs once before
 * the run, on a socket that is not connected: what cannot work is refused there. `send` returns when
 * the whole message is accepted. A strategy with `reap` is asynchronous: it raises message->pending
 * until a message's memory is its owner's again; reap(false) waits for at least one completion,
 * reap(true) until nothing is in flight.
 */
struct strategy {
	const char *name;
	const char *const *aliases;	/* NULL-terminated; NULL: none */
	struct strategy_claim claim;
	bool in_file;	/* its messages lie in a file, each in one piece: message->file_offset; takes --via */
	bool in_ring;	/* it sends through io_uring: takes --issue */
	bool by_field;	/* a send for each field: takes --push and --batch */
	bool vectored;	/* all fields in one call: takes --call */
	bool gives_memory;	/* its messages' own pages, for good: they lie in memory that nothing else is ever put into */
	bool registers;	/* and can have registered its messages' memory: takes --registered */
	bool relays;	/* its messages come from a program before it: flow->upstream (upstream.h) */
	bool splices;	/* and go on as the pages that they came in */
	int (*open)(struct flow *flow);
	void (*close)(struct flow *flow);
	int (*send)(struct flow *flow, struct message *message);
	int (*reap)(struct flow *flow, bool drain);
};

/* Whether what it sends is pages by reference, of which no completion tells. */
static inline bool strategy__gives_pages(const struct strategy *strategy)
{
	return strategy->in_file || strategy->gives_memory || strategy->splices;
}

/* Whether what it sends is its memory by reference, and a completion gives it back. */
static inline bool strategy__lends_memory(const struct strategy *strategy)
{
	return strategy->reap;
}

/* All strategies in the order of their names, NULL-terminated. */
extern const struct strategy *const strategies[];

/* This build was made without the library that it needs. */
bool strategy__is_absent(const char *name);
/* By name or alias; NULL: unknown. */
const struct strategy *strategy__find(const char *name);
/* The name or alias nearest to a misspelt one; NULL: none is near. */
const char *strategy__suggest(const char *name);
/* "null, per_field, ..." for messages. */
void strategy__list_names(char *text, size_t size);

#endif

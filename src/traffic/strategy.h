/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_STRATEGY_H
#define TRAFFIC_STRATEGY_H

#include <stdbool.h>
#include <stddef.h>

#include "flow.h"

/* Number of times that the sender is expected to copy each byte. The ledger measures the real number. */
struct strategy_claim {
	unsigned int user_copies;
	unsigned int kernel_copies;
	const char *what;
};

/*
 * A way to send a message. Each file in strategies/ defines a strategy, named strategy_<file name>. The build finds the strategy
 * by this name, and nothing else in the program refers to it.
 *
 * All functions return 0, or -errno with the reason in flow->failure. `open` is also called once before the run, on an
 * unconnected socket, to refuse settings that cannot work. `send` returns when the socket has accepted the whole message. A
 * strategy with `reap` is asynchronous: it raises message->pending while the kernel still refers to the memory of a message.
 * reap(false) waits for at least one completion, reap(true) until nothing is in flight.
 */
struct strategy {
	const char *name;
	const char *const *aliases;	/* other names of the strategy, NULL-terminated; NULL: no other names */
	struct strategy_claim claim;
	bool in_file;	/* messages are stored back to back in a file, each at message->file_offset; accepts --via */
	bool in_ring;	/* sends through io_uring; accepts --issue */
	bool by_field;	/* sends each field separately; accepts --push and --batch */
	bool vectored;	/* sends all fields with one system call; accepts --call */
	bool gives_memory;	/* sends references to its own memory without a completion, so this memory is never reused */
	bool registers;	/* can register its memory with io_uring; accepts --registered */
	bool relays;	/* forwards the data that it receives from flow->upstream (upstream.h) */
	bool splices;	/* forwards the received pages by reference */
	int (*open)(struct flow *flow);
	void (*close)(struct flow *flow);
	int (*send)(struct flow *flow, struct message *message);
	int (*reap)(struct flow *flow, bool drain);
};

/* Return true if the strategy sends references to pages, and the kernel does not report when it has released the pages. */
static inline bool strategy__gives_pages(const struct strategy *strategy)
{
	return strategy->in_file || strategy->gives_memory || strategy->splices;
}

/* Return true if the strategy sends references to its memory, and a notification reports when the memory may be reused. */
static inline bool strategy__lends_memory(const struct strategy *strategy)
{
	return strategy->reap;
}

/* All strategies of this build, sorted by name, NULL-terminated. */
extern const struct strategy *const strategies[];
/* Names of all strategies, including those that are not in this build, NULL-terminated. */
extern const char *const strategy_names[];

/* Return true if this build lacks the strategy, because a library was missing. */
bool strategy__is_absent(const char *name);
/* Return the strategy with this name or alias, or NULL. */
const struct strategy *strategy__find(const char *name);
/* Return the name of the strategy that a misspelled name probably means, or NULL. */
const char *strategy__suggest(const char *name);
/* Write the names of all strategies of this build: "null, one_copy, ...". */
void strategy__list_names(char *text, size_t size);

#endif

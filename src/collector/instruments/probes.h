/* SPDX-License-Identifier: GPL-2.0-only */
/* probes.h - loads the programs that this kernel accepts, and attaches and detaches them by instrument. */
#ifndef COLLECTOR_PROBES_H
#define COLLECTOR_PROBES_H

#include <stdbool.h>
#include <sys/types.h>

#include <jansson.h>

#include "abi.h"
#include "attach/attach.h"

struct copyscope;
struct sampling;
struct functions_options;
struct probes;
struct watch;

/* Upper limit of N in "time one call in N". */
#define GATE_MAX 1000000

/*
 * Load the BPF object with every program that this kernel accepts. The hook of a refused program records the reason.
 * Return 0 if the object itself could be loaded, otherwise -errno. Without the kernel's BTF no program can be loaded:
 * every hook says so, and every cell is empty.
 *
 * sends_in_pieces: calls of our own traffic may pass the socket more than once
 * functions: how to hook functions, and what to read
 * watch: NULL for our own traffic
 * sampling: object that shares its maps of watched processes and handled packets
 */
int probes__open(struct probes **probes, bool sends_in_pieces, const struct functions_options *functions,
		 const struct watch *watch, const struct sampling *sampling);
/* Return the skeleton, whose maps hold the cells. */
struct copyscope *probes__skeleton(struct probes *probes);
/* Attach the hooks of one instrument ("bytes", "calls"). Return -ENOENT if a required hook is missing. */
int probes__attach(struct probes *probes, const char *instrument);
/*
 * Attach the function hooks, unless they are attached; they stay until probes__close(). With `arm`, forget calls that
 * began before, and start counting. Return -ENOENT as above.
 */
int probes__hook(struct probes *probes, bool arm);
/* Return true if functions are hooked. A process that exits then waits for a grace period per function. */
bool probes__are_hooked(const struct probes *probes);
/*
 * Detach all hooks except those that stay (watch__keeps(), function hooks), and forget the clocks of calls that are
 * still running.
 */
int probes__detach(struct probes *probes);
/* Return true if bytes that a watched program receives by mapping or splice(2) are being counted. */
bool probes__counts_all_taken(const struct probes *probes);
/* Return {inode: [sent, received]} for every open TCP socket that has moved data. */
json_t *probes__sockets_json(const struct probes *probes);
/* Return the record's hooks[]. */
json_t *probes__hooks_json(const struct probes *probes);
/*
 * Return the record's loss{}, including losses of the sampler's programs. Call this last, because a counter that could not be
 * read is a loss, too.
 */
json_t *probes__loss_json(const struct probes *probes);
/* Return the record's functions{}. */
json_t *probes__functions_json(const struct probes *probes);
/* From now on time one function call in `one_in` (functions__gate()). */
int probes__gate_functions(struct probes *probes, unsigned int one_in);
void probes__close(struct probes *probes);

#endif

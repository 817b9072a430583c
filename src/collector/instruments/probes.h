/* SPDX-License-Identifier: GPL-2.0 */
/* probes.h - the tracepoint programs: load what works, attach and detach by instrument, read the cells. */
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

/* Of function hooks one call in at most so many is timed. */
#define GATE_MAX 1000000

/*
 * Loads the BPF object with every program that this kernel takes. A program that is refused is left
 * out and its hook says why; 0 as long as the object itself could be loaded, -errno otherwise.
 * Without the kernel's BTF no program can be loaded: every hook says so, and every cell is empty.
 * sends_in_pieces: some of our own traffic's calls pass the socket more than once. functions: how to hook functions, and what to read. watch: NULL for our own traffic; sampling: whose maps of
 * whom, and of what was handled last, are shared.
 */
int probes__open(struct probes **probes, bool sends_in_pieces, const struct functions_options *functions,
		 const struct watch *watch, const struct sampling *sampling);
/* The skeleton, for the cells. */
struct copyscope *probes__skeleton(struct probes *probes);
/* Attaches the hooks of one instrument ("bytes", "calls"); -ENOENT when a required one is missing. */
int probes__attach(struct probes *probes, const char *instrument);
/*
 * Attaches the hooks of functions, if they are not there yet; they stay until probes__close(). arm: what they kept of calls that
 * began before is forgotten, and their counters count. -ENOENT as above.
 */
int probes__hook(struct probes *probes, bool arm);
/* Whether functions are hooked: whoever ends then waits for a grace period of each of them. */
bool probes__are_hooked(const struct probes *probes);
/* Detaches all but what stays (watch__keeps(), function hooks); clocks of calls that are still open are forgotten. */
int probes__detach(struct probes *probes);
/* Whether bytes that a watched program takes by mapping or splice(2) are counted now. */
bool probes__counts_all_taken(const struct probes *probes);
/* The record's hooks[] and loss{}. */
json_t *probes__hooks_json(const struct probes *probes);
/* The record's loss{}, with what the programs of the sampler have lost. */
json_t *probes__loss_json(const struct probes *probes, const __u64 sampler_lost[LOSS_CNT]);
/* The record's functions{}. */
json_t *probes__functions_json(const struct probes *probes);
/* Of function hooks time one call in so many from now on (functions__gate). */
int probes__gate_functions(struct probes *probes, unsigned int one_in);
void probes__close(struct probes *probes);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/* commands.h - what the collector does when it is told to: one row per command. */
#ifndef COLLECTOR_COMMANDS_H
#define COLLECTOR_COMMANDS_H

#include <stdbool.h>
#include <sys/types.h>

#include "abi.h"
#include "report/watched.h"
#include "sampling/sampler.h"
#include "sampling/watch_target.h"

struct sampling;

struct collector {
	struct probes *probes;
	struct sampling *sampler_skel;
	struct sampler *sampler;
	struct stacks *stacks;
	/* How many samples had been taken when `stacks` got the last ones. */
	uint64_t drained;
	struct ksyms *ksyms;
	/* Its mode is WATCH_NOBODY in a run of our own traffic. */
	struct watch watch;
	struct watched watched;
	unsigned int frequency_hz;
	bool sampling;
	/* Function hooks count, or will when the instruments are open. */
	bool hooking;
	/* The instruments that are open, as ",watch,calls,". */
	char open[128];
};

/* Obeys stdin until `report` or its end. Returns 0 or -errno; a refused command is an answer, not an error. */
int commands__serve(struct collector *collector);
/* Attaches each instrument for a moment and prints what works: for `doctor`. */
int commands__probe(struct collector *collector);
/* Prints which hooks have a program that was loaded: for `make check-compilers`. */
int commands__load(struct collector *collector);

#endif

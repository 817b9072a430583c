/* SPDX-License-Identifier: GPL-2.0-only */
/* commands.h - commands of the collector. */
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
	/* Value of samples_taken when `stacks` was last filled. */
	uint64_t drained;
	struct ksyms *ksyms;
	/* watch.mode is WATCH_NOBODY in a run of our own traffic. */
	struct watch watch;
	struct watched watched;
	unsigned int frequency_hz;
	bool sampling;
	/* Function hooks count, or will count once the instruments are open. */
	bool hooking;
	/* Open instruments, as ",watch,calls,". */
	char open[128];
};

/*
 * Run commands from stdin until `report` or end of file. Return 0 or -errno. A refused command causes an error
 * answer, not an error return.
 */
int commands__serve(struct collector *collector);
/* Attach each instrument for a moment and print which ones work, for `copyscope doctor`. */
int commands__probe(struct collector *collector);
/* Print which hooks have a program that was loaded, for `make check-compilers`. */
int commands__load(struct collector *collector);

#endif

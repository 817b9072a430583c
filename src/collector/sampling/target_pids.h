/* SPDX-License-Identifier: GPL-2.0 */
/* target_pids.h - the processes of one side: one of our own traffic, any number of a watched program. */
#ifndef COLLECTOR_TARGET_PIDS_H
#define COLLECTOR_TARGET_PIDS_H

#include <stdbool.h>
#include <sys/types.h>

#include "abi.h"

/* As many as the map of watched processes holds; those that have ended keep their places. */
#define TARGET_PIDS_MAX WATCHED_MAX

struct target_pids {
	pid_t pids[TARGET_PIDS_MAX];
	int count;
	/* Those for which there was no room. */
	unsigned int lost;
	/* Its threads may come and go: no timer may wait for longer than such a thread lives. */
	bool restless;
};

/* False when it is there already, or when there is no room: then it is counted. */
bool target_pids__add(struct target_pids *targets, pid_t pid);

#endif

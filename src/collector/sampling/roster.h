/* SPDX-License-Identifier: GPL-2.0 */
/* roster.h - the processes of one side: one of our own traffic, any number of a watched program. */
#ifndef COLLECTOR_ROSTER_H
#define COLLECTOR_ROSTER_H

#include <stdbool.h>
#include <sys/types.h>

#include "abi.h"

/* As many as the map of watched processes holds; those that have ended keep their places. */
#define ROSTER_MAX WATCHED_MAX

struct roster {
	pid_t *pids;
	int count;
	int capacity;
	/* Those for which there was no room. */
	unsigned int lost;
	/* Its threads may come and go: no timer may wait for longer than such a thread lives. */
	bool restless;
};

/* False when it is there already, or when there is no room: then it is counted. */
bool roster__add(struct roster *roster, pid_t pid);
void roster__free(struct roster *roster);

#endif

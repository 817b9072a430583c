/* SPDX-License-Identifier: GPL-2.0 */
/* roster.h - the processes of one side: one of our own traffic, any number of a watched program. */
#ifndef COLLECTOR_ROSTER_H
#define COLLECTOR_ROSTER_H

#include <stdbool.h>
#include <sys/types.h>

#define ROSTER_MAX 1024

struct roster {
	pid_t pids[ROSTER_MAX];
	int count;
	/* Its threads may come and go: no timer may wait for longer than such a thread lives. */
	bool restless;
};

/* False when there is no room, or when it is there already. */
static inline bool roster__add(struct roster *roster, pid_t pid)
{
	for (int i = 0; i < roster->count; i++)
		if (roster->pids[i] == pid)
			return false;
	if (roster->count == ROSTER_MAX)
		return false;
	roster->pids[roster->count++] = pid;
	return true;
}

#endif

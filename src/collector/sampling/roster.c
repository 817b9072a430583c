// SPDX-License-Identifier: GPL-2.0
#include "roster.h"

#include <stdlib.h>

static bool make_room(struct roster *roster)
{
	int capacity = roster->capacity ? 2 * roster->capacity : 64;
	pid_t *pids;

	if (roster->count < roster->capacity)
		return true;
	if (roster->count >= ROSTER_MAX)
		return false;
	pids = realloc(roster->pids, capacity * sizeof(*pids));
	if (!pids)
		return false;
	roster->pids = pids;
	roster->capacity = capacity;
	return true;
}

bool roster__add(struct roster *roster, pid_t pid)
{
	for (int i = 0; i < roster->count; i++)
		if (roster->pids[i] == pid)
			return false;
	if (!make_room(roster)) {
		roster->lost++;
		return false;
	}
	roster->pids[roster->count++] = pid;
	return true;
}

void roster__free(struct roster *roster)
{
	free(roster->pids);
	*roster = (struct roster){};
}

// SPDX-License-Identifier: GPL-2.0
#include "target_pids.h"

#include <stdlib.h>

static bool make_room(struct target_pids *targets)
{
	int capacity = targets->capacity ? 2 * targets->capacity : 64;
	pid_t *pids;

	if (targets->count < targets->capacity)
		return true;
	if (targets->count >= TARGET_PIDS_MAX)
		return false;
	pids = realloc(targets->pids, capacity * sizeof(*pids));
	if (!pids)
		return false;
	targets->pids = pids;
	targets->capacity = capacity;
	return true;
}

bool target_pids__add(struct target_pids *targets, pid_t pid)
{
	for (int i = 0; i < targets->count; i++)
		if (targets->pids[i] == pid)
			return false;
	if (!make_room(targets)) {
		targets->lost++;
		return false;
	}
	targets->pids[targets->count++] = pid;
	return true;
}

void target_pids__free(struct target_pids *targets)
{
	free(targets->pids);
	*targets = (struct target_pids){};
}

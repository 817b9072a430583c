// SPDX-License-Identifier: GPL-2.0
#include "target_pids.h"

bool target_pids__add(struct target_pids *targets, pid_t pid)
{
	for (int i = 0; i < targets->count; i++)
		if (targets->pids[i] == pid)
			return false;
	if (targets->count == TARGET_PIDS_MAX) {
		targets->lost++;
		return false;
	}
	targets->pids[targets->count++] = pid;
	return true;
}

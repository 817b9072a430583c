// SPDX-License-Identifier: GPL-2.0-only
#include "watched.h"

#include "maps.h"

static void add_process(void *context, const void *tgid, const void *by)
{
	struct watched *watched = context;

	if (*(const __u32 *)by != WATCHED_NEVER && watched->count < WATCHED_MAX)
		watched->processes[watched->count++] = (struct watched_process){ *(const __u32 *)tgid, *(const __u32 *)by };
}

bool watched__update(struct watched *watched)
{
	/* Read the counters before the map, so that changes during the reading cause another one next time. */
	__u32 changes = __atomic_load_n(watched->map.changes[0], __ATOMIC_RELAXED) + __atomic_load_n(watched->map.changes[1], __ATOMIC_RELAXED);

	if (watched->is_read && changes == watched->changes)
		return false;
	watched->count = 0;
	maps__each(watched->map.fd, sizeof(__u32), sizeof(__u32), add_process, watched);
	watched->changes = changes;
	watched->is_read = true;
	return true;
}

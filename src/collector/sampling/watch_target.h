/* SPDX-License-Identifier: GPL-2.0-only */
/* watch_target.h - the watched program, and the processes and sockets that count as part of it. */
#ifndef COLLECTOR_WATCH_TARGET_H
#define COLLECTOR_WATCH_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"

struct watch {
	enum watch_mode mode;
	/* Include children that watched processes create from now on. */
	bool follow;
	/* Include programs of this name that start from now on; empty: none. */
	char comm[WATCH_COMM];
	uint64_t cgroup_id;
	unsigned int cgroup_level;
	/* Inode number of the network namespace of the sockets that count; 0: all namespaces. */
	unsigned int netns;
	/* Maximum number of open TCP sockets to follow, up to SOCKETS_MAX. */
	unsigned int sockets_max;
	/* Only for WATCH_ALL (task_offsets.h). */
	uint32_t task_offsets[TASK_FIELDS];
};

#endif

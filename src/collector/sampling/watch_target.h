/* SPDX-License-Identifier: GPL-2.0 */
/* watch_target.h - which program is watched, and what counts as its. */
#ifndef COLLECTOR_WATCH_TARGET_H
#define COLLECTOR_WATCH_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"

struct watch {
	enum watch_mode mode;
	/* Children that a process makes from now on belong to it. */
	bool follow;
	/* Programs of this name that are started from now on belong to it; empty: none. */
	char comm[WATCH_COMM];
	uint64_t cgroup_id;
	unsigned int cgroup_level;
	/* Inode number of the network namespace whose sockets count; 0: all. */
	unsigned int netns;
	/* How many open TCP sockets are told apart, at most SOCKETS_MAX. */
	unsigned int sockets_max;
};

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * watched.h - the processes of a watched program, as BPF knows them.
 *
 * The map has 16,384 places, and to go through them costs 80 us and the cache of the program on this CPU: it is read again
 * only when BPF has changed it.
 */
#ifndef COLLECTOR_WATCHED_H
#define COLLECTOR_WATCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "abi.h"

/* The map (tgid -> enum watched_by), and how often each of the two objects that write to it has changed it. */
struct watched_map {
	int fd;
	const volatile __u32 *changes[2];
};

struct watched_process {
	pid_t pid;
	enum watched_by by;
};

/* For one thread. Zero bytes are one that was never read. */
struct watched {
	struct watched_map map;
	bool is_read;
	__u32 changes;
	/* But for those that are never watched. */
	struct watched_process processes[WATCHED_MAX];
	size_t count;
};

/* Reads the map if it has changed, and says whether it has. What cannot be read is counted (maps.h). */
bool watched__update(struct watched *watched);

#endif

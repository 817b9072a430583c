/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * watched.h - processes of a watched program, as the BPF programs record them.
 *
 * The map has 16,384 entries. Walking them takes 80 us and displaces the program's data in this CPU's cache. The map
 * is therefore read again only after BPF programs have changed it.
 */
#ifndef COLLECTOR_WATCHED_H
#define COLLECTOR_WATCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "abi.h"

/* The map (tgid -> enum watched_by), and the change counters of the two objects that write to it. */
struct watched_map {
	int fd;
	const volatile __u32 *changes[2];
};

struct watched_process {
	pid_t pid;
	enum watched_by by;
};

/* Copy of the map, for use by one thread. A zero-initialised struct holds no copy yet. */
struct watched {
	struct watched_map map;
	bool is_read;
	__u32 changes;
	/* Excludes processes that are never watched. */
	struct watched_process processes[WATCHED_MAX];
	size_t count;
};

/* Read the map if it has changed. Return true if so. Read errors are counted (maps.h). */
bool watched__update(struct watched *watched);

#endif

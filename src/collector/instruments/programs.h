/* SPDX-License-Identifier: GPL-2.0-only */
/* programs.h - if all programs are watched: the calls and bytes of each program in each cgroup. */
#ifndef COLLECTOR_PROGRAMS_H
#define COLLECTOR_PROGRAMS_H

#include <jansson.h>

struct copyscope;
struct watch;

/* Size the maps before they are created. */
void programs__configure(const struct watch *watch, struct copyscope *skel);
/*
 * Return [[cgroup, comm, protocol, direction, syscall, calls, bytes, zerocopy_calls, zerocopy_bytes, last]]: totals since
 * the collector started. Cgroup 0 and an empty name: all programs that had no room in the map. While the map is more
 * than half full, cells that were idle for a minute are deleted: `last` marks their last row, and a later call starts
 * at zero.
 */
json_t *programs__json(const struct copyscope *skel);

#endif

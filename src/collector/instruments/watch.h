/* SPDX-License-Identifier: GPL-2.0 */
/* watch.h - a program that we did not write: how its processes are found, and what they moved so far. */
#ifndef COLLECTOR_WATCH_H
#define COLLECTOR_WATCH_H

#include <stdbool.h>
#include <sys/types.h>

#include <jansson.h>

#include "sampling/watch_target.h"

struct bpf_map;
struct copyscope;
struct ksyms;
struct watched;

/* Whether a hook stays attached between two segments. */
bool watch__keeps(const struct copyscope *skel, const char *instrument, const char *hook);
/* Before the programs are loaded; NULL: no program is watched. */
void watch__configure(const struct watch *watch, struct copyscope *skel);
/* What only the symbols tell: how memory that a program gave to a pipe is known from a page of a file. */
void watch__learn(struct copyscope *skel, const struct ksyms *ksyms);
void watch__add(struct copyscope *skel, pid_t tgid);
/* Copyscope itself and what it starts are not processes of the program, though they run in the cgroup. 0 or a negative errno. */
int watch__never(const struct bpf_map *watched);
/*
 * {"volume": [{protocol, direction, syscall, calls, bytes, ...sizes}], "packets": {...}, "shapes": [...], "totals": {...},
 *  "processes": [[tgid, forked]]}: totals since the collector started.
 */
json_t *watch__json(const struct copyscope *skel, struct watched *watched);
/* {inode: [sent, received]} of every open TCP socket that was used. */
json_t *watch__sockets_json(const struct copyscope *skel);
/* [{"netns", "address", "device"}] of the TCP sockets that were used, open or not. */
json_t *watch__peers_json(const struct copyscope *skel);

#endif

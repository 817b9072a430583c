/* SPDX-License-Identifier: GPL-2.0-only */
/* watch.h - watched programs: selection of their processes, and the data that they have moved so far. */
#ifndef COLLECTOR_WATCH_H
#define COLLECTOR_WATCH_H

#include <stdbool.h>
#include <sys/types.h>

#include <jansson.h>

#include "sampling/watch_target.h"

struct bpf_link;
struct bpf_map;
struct copyscope;
struct ksyms;
struct watched;

/* Return true if the hooks of an instrument stay attached between two segments. */
bool watch__keeps(const char *instrument);
/* Configure the skeleton before its programs are loaded. NULL: no program is watched. */
void watch__configure(const struct watch *watch, struct copyscope *skel);
/* Set the kernel addresses that identify pages in a pipe and sockets in a sockmap. */
void watch__learn(struct copyscope *skel, const struct ksyms *ksyms);
void watch__add(struct copyscope *skel, pid_t tgid);
/* Exclude copyscope and its children, which would otherwise be selected. Return 0 or -errno. */
int watch__never(const struct bpf_map *watched);
/*
 * Return the totals since the collector started: {"volume": [{protocol, direction, syscall, calls, bytes, ...sizes}],
 * "packets": {...}, "shapes": [...], "send_errors": [...], "buffers": [...], "relays": {...}, "processes": [[tgid,
 * forked]], "totals": {...}, "page_bytes"}.
 */
json_t *watch__json(const struct copyscope *skel, struct watched *watched);
/* See probes__sockets_json(). `list`: for the counts that are stored at the sockets (stored_sockets__each()). */
json_t *watch__sockets_json(const struct copyscope *skel, const struct bpf_link *list);
/* Return [{"netns", "address", "device"}] for the peers of sockets that have moved data, including closed ones. */
json_t *watch__peers_json(const struct copyscope *skel);

#endif

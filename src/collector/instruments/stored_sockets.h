/* SPDX-License-Identifier: GPL-2.0-only */
/* stored_sockets.h - counts that BPF programs store at sockets (bpf/watched_sockets.bpf.h), read with a BPF iterator. */
#ifndef COLLECTOR_STORED_SOCKETS_H
#define COLLECTOR_STORED_SOCKETS_H

#include <stdbool.h>

struct bpf_link;
struct btf;
struct copyscope;
struct socket_cell;

/* Return true if tracing programs of this kernel may store values at sockets (5.11 and newer). */
bool stored_sockets__exist(const struct btf *btf);
/* Return a link for stored_sockets__each(), or NULL if the kernel refuses the iterator. */
struct bpf_link *stored_sockets__attach(const struct copyscope *skel);
/*
 * Call `each` with the counts of every socket. A socket may be listed twice or not at all if others appear or close
 * meanwhile. Without a link there are no sockets. Failures to read are counted (maps__note_unread()).
 */
void stored_sockets__each(const struct bpf_link *link, void (*each)(void *context, const struct socket_cell *cell), void *context);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * watch.bpf.h - a program that we did not write: what its three files share.
 *
 * watch.bpf.c    who belongs to it
 * volume.bpf.c   what moves through its sockets, call by call
 * arrival.bpf.c  what becomes of it: packets, completions
 *
 * The hooks of the first two stay attached for the whole run, in the control segments as well: without them nobody would
 * know how much such a program moved. They are the cheap ones, some map lookups and a few additions per socket call.
 */
#ifndef COPYSCOPE_WATCH_BPF_H
#define COPYSCOPE_WATCH_BPF_H

#include "socket.bpf.h"

extern __u64 watch_totals[WATCH_TOTAL_CNT];

/* By the address of the socket; a socket that is gone leaves its place to the next. */
struct zerocopy_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct zerocopy_socket);
};
extern struct zerocopy_map zerocopy_sockets SEC(".maps");

static __always_inline void add_total(enum watch_total what, __u64 count)
{
	__sync_fetch_and_add(&watch_totals[what], count);
}

static __always_inline __u32 size_slot(__u64 bytes)
{
	__u32 slot = 0;

	for (int shift = 16; shift; shift >>= 1) {
		if (bytes >> shift) {
			bytes >>= shift;
			slot += shift;
		}
	}
	return slot & (SIZE_SLOTS - 1);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * watch.bpf.h - a program that we did not write: what its six files share.
 *
 * watch.bpf.c    who belongs to it
 * volume.bpf.c   what moves through its sockets, call by call
 * splice.bpf.c   whether it takes bytes out of a socket with splice(2)
 * uring.bpf.c    which of it io_uring sent without a copy
 * shape.bpf.c    how it hands over what it sends, and how often TCP goes round for it
 * arrival.bpf.c  what becomes of it: packets, completions
 *
 * Those of watch, volume and uring stay attached for the whole run, in the control segments as well: without them nobody would
 * know how much such a program moved. They are the cheap ones, some map lookups and a few additions per socket call.
 */
#ifndef COPYSCOPE_WATCH_BPF_H
#define COPYSCOPE_WATCH_BPF_H

#include "socket.bpf.h"

#define PF_IO_WORKER 0x10

extern __u64 watch_totals[WATCH_TOTAL_CNT];
struct volume_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VOLUME_CELLS);
	__type(key, __u32);
	__type(value, struct volume_cell);
};
extern struct volume_map volume_cells SEC(".maps");
/* Which of these cells anything was counted in: reading a map costs the collector a system call a cell. */
extern __u8 volume_used[VOLUME_SLOTS];

/* By the address of the socket, until it is closed. */
struct zerocopy_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SOCKETS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct zerocopy_socket);
};
extern struct zerocopy_map zerocopy_sockets SEC(".maps");

static __always_inline void add_total(enum watch_total what, __u64 count)
{
	add_atomic(&watch_totals[what], count);
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
	return slot;
}

/*
 * Which call the running task is in. Workers of io_uring are in none: their registers are the parent's or empty. Everything is
 * reached from pointers that the verifier knows, so that it is loaded and not copied by a helper: this runs at each call.
 */
static __always_inline __u32 current_call(struct system_call *made)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 call = read_system_call(made, (struct pt_regs *)bpf_task_pt_regs(task));

	if (task->flags & PF_IO_WORKER)
		made->call = CALL_IO_URING;
	else if (call == CALL_NONE)
		made->call = CALL_OTHER;
	return made->call;
}

static __always_inline __u32 volume_index(__u32 protocol, enum direction direction, __u32 call)
{
	return (protocol * DIRECTION_CNT + direction) * CALL_CNT + call;
}

static __always_inline struct volume_cell *volume_of(__u32 protocol, enum direction direction, __u32 call)
{
	__u32 index = volume_index(protocol, direction, call);

	return bpf_map_lookup_elem(&volume_cells, &index);
}

#endif

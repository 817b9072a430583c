/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * watch.bpf.h - watched programs: declarations that these eight files share.
 *
 *  watch.bpf.c    processes that belong to the program
 *  volume.bpf.c   bytes that move through its sockets, per call
 *  copied_out.bpf.c  bytes that are copied from packets into its memory
 *  splice.bpf.c   detects that it takes bytes from a socket with splice(2)
 *  uring.bpf.c    sends that io_uring made without a copy
 *  shape.bpf.c    buffers of its sends, and the rounds that TCP takes for them
 *  arrival.bpf.c  packets and completions of its sends
 *  programs.bpf.c  if all programs are watched, the bytes of each
 *
 * The hooks of watch, volume and uring stay attached for the whole run, including the control segments, because
 * nothing else counts what such a program moves. They are cheap: some map lookups and a few additions per socket
 * call.
 */
#ifndef COPYSCOPE_WATCH_BPF_H
#define COPYSCOPE_WATCH_BPF_H

#include "socket.bpf.h"

#define PF_IO_WORKER 0x10

extern __u64 watch_totals[WATCH_TOTAL_CNT];
/* Calls of tee(2) and the bytes that they doubled, so that a relay may send more packets than it took. */
extern __u64 teed_calls;
extern __u64 teed_bytes;
struct volume_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VOLUME_CELLS);
	__type(key, __u32);
	__type(value, struct volume_cell);
};
extern struct volume_map volume_cells SEC(".maps");
/* The cells with a nonzero count. The collector needs one system call per cell to read the map. */
extern __u8 volume_used[VOLUME_SLOTS];

/* Keyed by the address of the socket, until the socket is closed. */
struct zerocopy_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SOCKETS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct zerocopy_socket);
};
extern struct zerocopy_map zerocopy_sockets SEC(".maps");

static __always_inline void add_total(enum watch_total total, __u64 count)
{
	add_atomic(&watch_totals[total], count);
}

static __always_inline void count_teed(__u64 bytes)
{
	add_atomic(&teed_calls, 1);
	add_atomic(&teed_bytes, bytes);
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
 * Return the call in which a socket of the running task moves bytes. io_uring also moves bytes outside of its own call:
 * in workers, whose registers are those of the parent or empty, and in task work, which runs when another call has
 * returned or after an interrupt. All pointers here are ones that the verifier knows, so that they are loaded directly
 * instead of by a helper, because this runs at each call.
 */
static __always_inline __u32 current_call(struct system_call *syscall)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u32 call = read_call_of(task, syscall, regs);

	if (task->flags & PF_IO_WORKER || !IS_INSIDE_CALL(regs))
		syscall->call = CALL_IO_URING;
	else if (call == CALL_NONE)
		syscall->call = CALL_OTHER;
	return syscall->call;
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

int count_for_program(__u32 index, __u64 bytes);
int count_zerocopy_for_program(__u32 index, __u64 bytes);

/*
 * With WATCH_ALL: count a call and its bytes, or a zero-copy send, in the cell of the running program. Programs that kernels
 * before 6.3 load for each send do not call these functions: the verifier of 5.10 forgets the bounds of numbers that a
 * call moves to the stack, and then reaches its limit.
 */
static __always_inline void count_by_program(__u32 protocol, enum direction direction, __u32 call, __u64 bytes)
{
	if (watch_mode == WATCH_ALL && (direction == DIRECTION_SEND || direction == DIRECTION_RECEIVE))
		count_for_program(volume_index(protocol, direction, call), bytes);
}

static __always_inline void count_zerocopy_by_program(__u32 protocol, __u32 call, __u64 bytes)
{
	if (watch_mode == WATCH_ALL)
		count_zerocopy_for_program(volume_index(protocol, DIRECTION_SEND, call), bytes);
}

static __always_inline struct volume_cell *count_volume(__u32 protocol, enum direction direction, __u32 call, __u64 bytes)
{
	struct volume_cell *cell = volume_of(protocol, direction, call);

	if (!cell)
		return NULL;
	if (!cell->calls)
		volume_used[BOUNDED(volume_index(protocol, direction, call), VOLUME_SLOTS)] = 1;
	cell->calls++;
	cell->bytes += bytes;
	cell->sizes[BOUNDED(size_slot(bytes), SIZE_SLOTS)]++;
	if (bytes > cell->largest_bytes)
		cell->largest_bytes = bytes;
	return cell;
}

#endif

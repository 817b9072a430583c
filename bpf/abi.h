/* SPDX-License-Identifier: GPL-2.0 */
/*
 * abi.h - what the BPF programs and the collector both see: map values and limits.
 *
 * Nothing else is shared. Fixed-width integers, no pointers, no bool, sizes asserted: the two sides are
 * compiled by different compilers for different targets.
 */
#ifndef COPYSCOPE_ABI_H
#define COPYSCOPE_ABI_H

/* On the BPF side vmlinux.h has these types already. */
#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define ABI_VERSION 1

/* Deepest kernel stack that perf keeps by default (/proc/sys/kernel/perf_event_max_stack). */
#define STACK_DEPTH 127
/* Distinct stacks of one segment; the collector drains the map between segments. */
#define STACKS_MAX 16384
/* Threads of both targets that may be inside a syscall at once. */
#define TASKS_MAX 8192
/* Syscall numbers of every supported architecture are below this. */
#define SYSCALLS_MAX 512

/* Who a sample or a call belongs to. SIDE_OTHER is any task that is not a target (ksoftirqd, idle, ...). */
enum side {
	SIDE_SENDER,
	SIDE_RECEIVER,
	SIDE_OTHER,
};
#define SIDE_TARGETS 2

/*
 * The syscalls that carry payload. The collector gives each its number and name (names.c). Our own traffic makes the
 * first six; those from CALL_READ on are followed only when another program is watched, and only on TCP and UDP sockets.
 */
enum call {
	CALL_NONE,
	CALL_RECVFROM,
	CALL_RECVMSG,
	CALL_RECVMMSG,
	CALL_SENDTO,
	CALL_SENDMSG,
	CALL_SENDMMSG,
	CALL_READ,
	CALL_READV,
	CALL_WRITE,
	CALL_WRITEV,
	CALL_SENDFILE,
	CALL_SPLICE,
	/* splice(2) out of a socket: the same number, told apart by its file descriptors. */
	CALL_SPLICE_READ,
	CALL_IO_URING,
	/* Payload that moved in none of these: in-kernel senders, system calls that nobody thought of. */
	CALL_OTHER,
	CALL_CNT,
};

/* What the sampler counts; each is one perf event per CPU. */
enum sample_event {
	SAMPLE_CPU_CLOCK,
	SAMPLE_CYCLES,
	SAMPLE_LLC_LOAD_MISSES,
	SAMPLE_L1D_LOAD_MISSES,
	SAMPLE_CNT,
};

/* What the time inside a send, a receive or a softirq is charged to: the innermost hooked function decides. */
enum category {
	CATEGORY_NONE,
	CATEGORY_SEND,
	CATEGORY_RECEIVE,
	CATEGORY_COPY_IN,
	CATEGORY_PIN,
	CATEGORY_PIN_PAGES,
	CATEGORY_DEFERRED,
	CATEGORY_SILENT,
	CATEGORY_COMPLETION,
	CATEGORY_COPY_OUT,
	CATEGORY_TRANSMIT,
	CATEGORY_SKB,
	CATEGORY_MEMORY,
	CATEGORY_SOFTIRQ,
	CATEGORY_TSQ,
	CATEGORY_CNT,
};

/* How a hooked function is followed. */
enum hook_kind {
	/* Its time is its own, inside a root. */
	KIND_SPAN,
	/* As a span, and time is followed from here on. */
	KIND_ROOT,
	/* As a span, and the bytes that the bracket announced were not copied after all. */
	KIND_REFERENCE,
	/* Its return is the beginning of a copy that no hook can see; the next event is its end. */
	KIND_BRACKET,
	/* Its entry ends a bracket. */
	KIND_MARK,
	/* As a span, but a part of the deferred copy where it runs inside one: that is charged as a whole. */
	KIND_PART,
	/* As a root, on top of any task: softirq work of a vector that is not followed as such. */
	KIND_WORK,
};

/* Where a hooked function's bytes are. */
enum hook_bytes {
	BYTES_NONE,
	BYTES_RETURNED,
	BYTES_SKB_DATA_LEN,
	BYTES_CHECKED,
	BYTES_FOURTH_ARGUMENT,
	BYTES_RETURNED_PAGES,
};

/* Programs that could not do their work say so here; every slot is read and printed. */
enum loss {
	LOSS_STACK_MAP_FULL,
	LOSS_STACK_UNREADABLE,
	LOSS_TASK_MAP_FULL,
	LOSS_SHADOW_MAP_FULL,
	LOSS_SHADOW_OVERFLOW,
	LOSS_SHADOW_BROKEN,
	LOSS_ZEROCOPY_MAP_FULL,
	LOSS_COUNTER_UNREADABLE,
	LOSS_WATCHED_MAP_FULL,
	LOSS_WATCHED_ZEROCOPY_MAP_FULL,
	LOSS_CNT,
};

/* How the processes of a watched program are found. */
enum watch_mode {
	WATCH_NOBODY,
	/* The map `watched` decides. */
	WATCH_PROCESSES,
	/* The cgroup of the running task decides; the map remembers whom it decided for. */
	WATCH_CGROUP,
};

/* How a process came to be watched: by itself, or because its parent was (then it has inherited what that had). */
enum watched_by {
	WATCHED_ITSELF = 1,
	WATCHED_BY_FORK,
};

#define WATCHED_MAX 16384
#define WATCH_COMM 16

enum direction {
	DIRECTION_SEND,
	DIRECTION_RECEIVE,
	/* What of the received was copied to the program's memory, packet by packet. */
	DIRECTION_COPY_OUT,
	DIRECTION_CNT,
};

enum protocol {
	PROTOCOL_TCP,
	PROTOCOL_UDP,
	PROTOCOL_CNT,
};

/* Slot n holds sizes of [2^n, 2^(n+1)) bytes; slot 0 holds empty calls as well. */
#define SIZE_SLOTS 32

/* What a watched program moved through its sockets: one per protocol, direction and system call. */
struct volume_cell {
	__u64 calls;
	__u64 bytes;
	__u64 zerocopy_calls;
	__u64 zerocopy_bytes;
	__u64 nodelay_calls;
	__u64 cork_calls;
	__u64 largest_bytes;
	__u64 sizes[SIZE_SLOTS];
};
_Static_assert(sizeof(struct volume_cell) == 56 + 8 * SIZE_SLOTS, "volume_cell");
#define VOLUME_CELLS (PROTOCOL_CNT * DIRECTION_CNT * CALL_CNT)

/* Packets that the program itself handed to a device, before the device cuts them. */
struct packet_cell {
	__u64 packets;
	__u64 bytes;
	__u64 segments;
	__u64 sizes[SIZE_SLOTS];
};
_Static_assert(sizeof(struct packet_cell) == 24 + 8 * SIZE_SLOTS, "packet_cell");

/* What one TCP socket moved, by its inode: to be compared with what TCP itself says of it (TCP_INFO). */
struct socket_cell {
	__u64 sent_bytes;
	__u64 received_bytes;
};
_Static_assert(sizeof(struct socket_cell) == 16, "socket_cell");
#define SOCKETS_MAX 16384

/* What became of the zero-copy sends of one socket, read from its error queue without taking anything off. */
struct zerocopy_socket {
	/* The first send whose completion has not been seen. */
	__u32 next_id;
	__u32 pad;
};
_Static_assert(sizeof(struct zerocopy_socket) == 8, "zerocopy_socket");

/* Totals of a watched program that are no bytes. */
enum watch_total {
	WATCH_FORKS,
	/* Threads of watched processes, first threads too, that were made. */
	WATCH_BIRTHS,
	WATCH_EXITS,
	WATCH_COMPLETIONS,
	WATCH_COPIED,
	WATCH_NOTIFICATIONS,
	/* Completions that the program had taken off the queue before they could be read. */
	WATCH_UNSEEN,
	WATCH_TOTAL_CNT,
};

/* Exact byte counters: one per hook and side. */
enum byte_hook {
	BYTES_SEND,
	BYTES_RECEIVE,
	BYTES_COPY_OUT,
	BYTES_CNT,
};

struct byte_cell {
	__u64 calls;
	__u64 bytes;
	__u64 zerocopy_calls;
	__u64 zerocopy_bytes;
};
_Static_assert(sizeof(struct byte_cell) == 32, "byte_cell");

/*
 * Log-linear histogram of nanoseconds: HIST_SUB linear slots in each power of two, so a slot is at
 * most 1/HIST_SUB = 25 % wide. 38 powers of two reach 274 s.
 */
#define HIST_SUB_BITS 2
#define HIST_SUB (1 << HIST_SUB_BITS)
#define HIST_SLOTS (38 * HIST_SUB)

enum call_time {
	TIME_ON_CPU,
	TIME_SOFTIRQ,
	TIME_BLOCKED,
	TIME_CNT,
};

struct call_cell {
	__u64 calls;
	__u64 bytes;
	__u64 timed;
	__u64 largest_bytes;
	__u64 total_ns[TIME_CNT];
	__u32 histogram[TIME_CNT][HIST_SLOTS];
};
_Static_assert(sizeof(struct call_cell) == 56 + 4 * TIME_CNT * HIST_SLOTS, "call_cell");

/* The clock of one task that is inside a syscall. */
struct task_clock {
	__u64 enter_ns;
	__u64 off_cpu_since_ns;
	__u64 softirq_since_ns;
	__u64 spent_ns[TIME_CNT];
	__u32 call;
	__u32 pad;
};
_Static_assert(sizeof(struct task_clock) == 56, "task_clock");

/* Perf counters that are read with the clock, at most. */
#define COUNTERS_MAX 4
/* Reads in one run of the program that measures what they cost. */
#define READ_COST_READS 32

/* One look at the clock and at the counters of this CPU. */
struct reading {
	__u64 ns;
	__u64 counters[COUNTERS_MAX];
};
_Static_assert(sizeof(struct reading) == 8 + 8 * COUNTERS_MAX, "reading");

/* Functions nested in each other at once; deeper ones are charged to the last that fits. */
#define SHADOW_DEPTH 16
#define SHADOWS_MAX 4096
#define CONTEXTS 2
/* A power of two, for an index that the verifier can bound. */
#define CATEGORY_SLOTS 16
_Static_assert(CATEGORY_CNT <= CATEGORY_SLOTS, "category");

struct shadow_frame {
	__u64 bytes;
	__u32 category;
	/* enum function_row */
	__u32 row;
};

/* The functions that one task is in, its clock and its counters. */
struct shadow {
	/* Since when nothing has been charged to the innermost frame; ns is 0 while the task is off its CPU. */
	struct reading since;
	struct reading root;
	struct reading off_cpu_since;
	/* Modulo 2^64: what a counter was on the CPU that was left and on the one that came may be in any order. */
	struct reading off_cpu;
	/* off_cpu when the program that works on this began: a preempted program must not count that time. */
	struct reading off_cpu_before;
	__u64 random;
	__u32 depth;
	__u32 softirqs;
	__u32 busy;
	/* Is this call timed, or only counted? */
	__u32 timed;
	/* Calls until the end of this round of gate_one_in, and how many are left when one is timed. */
	__u32 gate_left;
	__u32 gate_pick;
	struct shadow_frame frames[SHADOW_DEPTH];
	/* What was charged since the root began, by context and category: added to the cells when it ends. */
	struct reading spent[CONTEXTS][CATEGORY_SLOTS];
};
_Static_assert(sizeof(struct shadow) == 232 + 16 * SHADOW_DEPTH + 40 * CONTEXTS * CATEGORY_SLOTS, "shadow");

/* The unit of squares: of nanoseconds they would not fit. */
#define SQUARE_SHIFT 6

/* One per side, context (process, softirq) and category. Calls and bytes of all calls, the others of the timed ones. */
struct function_cell {
	__u64 calls;
	__u64 bytes;
	__u64 timed_calls;
	/* Sum over the timed roots of the square of what each spent here, in (64 ns)^2. */
	__u64 squares;
	struct reading self;
};
_Static_assert(sizeof(struct function_cell) == 32 + sizeof(struct reading), "function_cell");
#define FUNCTION_CELLS ((SIDE_OTHER + 1) * CONTEXTS * CATEGORY_CNT)

/* The roots of a side: entry to exit on the CPU, measured apart from the self times that must add up to it. */
struct root_cell {
	__u64 calls;
	__u64 timed_calls;
	struct reading inclusive;
};
_Static_assert(sizeof(struct root_cell) == 16 + sizeof(struct reading), "root_cell");

/* Zero-copy sends whose notification is not queued yet, one entry per ubuf_info; optmem_max bounds them per socket. */
#define ZEROCOPY_USES_MAX 8192

/* A ubuf_info, from the first send that used it to its notification. */
struct zerocopy_use {
	/* When the last send that used it returned; 0 while one has not. */
	__u64 returned_ns;
	__u32 side;
	__u32 sends;
	__u32 copied;
	__u32 pad;
};
_Static_assert(sizeof(struct zerocopy_use) == 24, "zerocopy_use");

/* The ubuf_info that a task's send uses. */
struct zerocopy_send {
	__u64 ubuf;
	__u32 is_new;
	__u32 pad;
};
_Static_assert(sizeof(struct zerocopy_send) == 16, "zerocopy_send");

/* Deferred copies: one per owner (OWNER_UNKNOWN included), side that ran them, and context (CONTEXT_UNKNOWN, too). */
struct owner_cell {
	__u64 calls;
	__u64 bytes;
};
_Static_assert(sizeof(struct owner_cell) == 16, "owner_cell");
#define OWNER_UNKNOWN (SIDE_OTHER + 1)
#define OWNERS (OWNER_UNKNOWN + 1)
#define CONTEXT_UNKNOWN CONTEXTS
#define OWNER_CONTEXTS (CONTEXT_UNKNOWN + 1)
#define OWNER_CELLS (OWNERS * (SIDE_OTHER + 1) * OWNER_CONTEXTS)

/* Notifications of one side's zero-copy sends; a send is counted where its notification came. */
struct completion_cell {
	__u64 copied;
	__u64 zerocopied;
	__u64 notifications;
	__u64 before_return;
	__u32 histogram[HIST_SLOTS];
};
_Static_assert(sizeof(struct completion_cell) == 32 + 4 * HIST_SLOTS, "completion_cell");

struct stack_cell {
	__u64 samples;
	/* Sum of the sample periods, in the event's own unit (ns for cpu-clock). */
	__u64 weight;
	__u32 side;
	__u32 event;
	__u32 depth;
	__u32 pad;
	__u64 frames[STACK_DEPTH];
};
_Static_assert(sizeof(struct stack_cell) == 32 + 8 * STACK_DEPTH, "stack_cell");

#endif

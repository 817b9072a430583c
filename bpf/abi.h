/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * abi.h - map values and limits that the BPF programs and the collector share.
 *
 * The BPF programs and the collector share no other types. Different compilers build both for different targets: hence fixed-width
 * integers, no pointers, no bool, and asserted sizes.
 */
#ifndef COPYSCOPE_ABI_H
#define COPYSCOPE_ABI_H

/* BPF programs get these types from vmlinux.h. */
#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define ABI_VERSION 1

/* Default depth limit of kernel stacks in perf (/proc/sys/kernel/perf_event_max_stack). */
#define STACK_DEPTH 127
/* Maximum number of distinct stacks in one segment; the collector drains the map between segments. */
#define STACKS_MAX 16384
/* Maximum number of threads, of both targets, that are inside a syscall at the same time. */
#define TASKS_MAX 8192
/*
 * Upper bound of system call numbers on every supported architecture, native and 32-bit. Numbers of calls that only x32
 * has start at 512, above the native ones. The last SOCKETCALLS entries of the table hold the calls of socketcall(2).
 */
#define SYSCALLS_MAX 1024
#define SOCKETCALLS 32
#define SOCKETCALLS_AT (SYSCALLS_MAX - SOCKETCALLS)

/*
 * The process that a sample or a call belongs to. SIDE_OTHER is any task that is not a target (ksoftirqd, idle, ...).
 */
enum side {
	SIDE_SENDER,
	SIDE_RECEIVER,
	SIDE_OTHER,
};
#define SIDE_TARGETS 2

/*
 * Syscalls that carry payload. The collector maps numbers and names to them (names.c). Our own traffic uses the first
 * ten. Calls from CALL_READ on are followed only in a watched program, and only on sockets of enum protocol.
 */
enum call {
	CALL_NONE,
	CALL_RECVFROM,
	CALL_RECVMSG,
	CALL_RECVMMSG,
	CALL_SENDTO,
	CALL_SENDMSG,
	CALL_SENDMMSG,
	CALL_SENDFILE,
	CALL_WRITEV,
	CALL_SPLICE,
	/* vmsplice(2) into a pipe, in our own traffic only. No socket takes part in this call. */
	CALL_VMSPLICE,
	CALL_READ,
	CALL_READV,
	CALL_WRITE,
	/* splice(2) from a socket. The number is that of CALL_SPLICE; the file descriptors show the direction. */
	CALL_SPLICE_READ,
	/* splice(2) of the program's own memory into a socket. Counts bytes, not calls (pipe.bpf.h). */
	CALL_SPLICE_MEMORY,
	/* splice(2) into a socket of pages that write(2) filled: write(2) copied them into the pipe. */
	CALL_SPLICE_WRITTEN,
	/* splice(2) into a socket of pages that splice(2) took from a socket. */
	CALL_SPLICE_RELAYED,
	/* getsockopt(2) with TCP_ZEROCOPY_RECEIVE, which maps received data. Other options are CALL_NONE. */
	CALL_MAP,
	/* tee(2), which doubles the bytes of a pipe. No socket takes part in this call. */
	CALL_TEE,
	CALL_IO_URING,
	/* Payload moved by none of these calls: by in-kernel senders, or by system calls without a hook. */
	CALL_OTHER,
	CALL_CNT,
	/* socketcall(2), in tables of numbers only: its first argument selects the call. */
	CALL_SOCKETCALL = CALL_CNT,
};

/* System call tables: the kernel's native numbers, and the numbers of 32-bit programs. */
enum number_table {
	NUMBERS,
	NUMBERS_32BIT,
	NUMBER_TABLES,
};

/* Events that the sampler counts, one perf event per CPU each. */
enum sample_event {
	SAMPLE_CPU_CLOCK,
	SAMPLE_CYCLES,
	SAMPLE_REF_CYCLES,
	SAMPLE_LLC_LOAD_MISSES,
	SAMPLE_L1D_LOAD_MISSES,
	SAMPLE_CNT,
};

/* Counters of work that a BPF program could not do. The collector reads and prints every one. */
enum loss {
	LOSS_STACK_MAP_FULL,
	LOSS_STACK_UNREADABLE,
	LOSS_TASK_MAP_FULL,
	LOSS_CALL_STACK_MAP_FULL,
	LOSS_CALL_STACK_OVERFLOW,
	LOSS_CALL_STACK_BROKEN,
	LOSS_LOOK_STOPPED,
	LOSS_ZEROCOPY_MAP_FULL,
	LOSS_COUNTER_UNREADABLE,
	LOSS_WATCHED_MAP_FULL,
	LOSS_WATCHED_ZEROCOPY_MAP_FULL,
	LOSS_WATCHED_WAITING_MAP_FULL,
	LOSS_WATCHED_SOCKET_MAP_FULL,
	LOSS_SPLICE_UNCOUNTED,
	LOSS_WATCHED_UNREADABLE,
	LOSS_CALL_FILE_CLOSED,
	LOSS_PROGRAM_MAP_FULL,
	LOSS_CNT,
};

/* How the processes of a watched program are selected. */
enum watch_mode {
	WATCH_NOBODY,
	/* The map `watched` selects them. */
	WATCH_PROCESSES,
	/* The cgroup of the running task selects them; the map `watched` caches the result. */
	WATCH_CGROUP,
	/* All processes except kernel threads and copyscope itself. */
	WATCH_ALL,
};

/*
 * Why a process is watched: it was selected itself, or it is the child of a watched process and inherited its state.
 */
enum watched_by {
	WATCHED_ITSELF = 1,
	WATCHED_BY_FORK,
	/* copyscope itself and its helpers, if they would be selected. */
	WATCHED_NEVER,
};

#define WATCHED_MAX 16384
#define WATCH_COMM 16

/* Exact byte counters: one per hook and side. */
enum byte_hook {
	BYTES_SEND,
	BYTES_RECEIVE,
	BYTES_COPY_OUT,
	BYTES_URING,
	BYTES_CNT,
};

struct byte_cell {
	__u64 calls;
	__u64 bytes;
	__u64 zerocopy_calls;
	__u64 zerocopy_bytes;
	/* sendfile(2) and splice(2): one call to the socket per pipe full of pages. */
	__u64 spliced_calls;
	__u64 spliced_bytes;
};
_Static_assert(sizeof(struct byte_cell) == 48, "byte_cell");

/*
 * Log-linear histogram of nanoseconds: HIST_SUB linear slots in each power of two, so a slot is at most 1/HIST_SUB =
 * 25 % wide. 38 powers of two reach 274 s.
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
	/*
	 * Failed calls, except those that programs retry anyway (EAGAIN, EINTR), and the errno of the last failure.
	 */
	__u64 failed;
	__u64 last_errno;
	__u64 total_ns[TIME_CNT];
	__u32 histogram[HIST_SLOTS];	/* durations of TIME_ON_CPU only */
};
_Static_assert(sizeof(struct call_cell) == 72 + 4 * HIST_SLOTS, "call_cell");

/* Clock of one task that is inside a syscall. */
struct task_clock {
	__u64 enter_ns;
	__u64 off_cpu_since_ns;
	__u64 softirq_since_ns;
	__u64 spent_ns[TIME_CNT];
	__u32 call;
	__u32 protocol;
};
_Static_assert(sizeof(struct task_clock) == 56, "task_clock");

/* Owner of the packet that a CPU handled last, and the jiffy in which the CPU handled this packet. */
enum packet_owner {
	OWNER_NOT_KNOWN,
	OWNER_TARGET,
	OWNER_OTHERS,
	OWNER_CNT,
};

struct handled_packet {
	__u64 jiffies;
	__u32 owner;
	__u32 pad;
};
_Static_assert(sizeof(struct handled_packet) == 16, "handled_packet");

/*
 * Unit of sample periods before they are squared. Squares of nanoseconds or cycles would overflow 64 bits; periods of
 * cache misses are short enough.
 */
#define WEIGHT_UNIT(event) \
	((event) == SAMPLE_CPU_CLOCK || (event) == SAMPLE_CYCLES || (event) == SAMPLE_REF_CYCLES ? 1024 : 1)

/* Maximum number of functions whose presence on a stack shows that the stack belongs to a softirq. */
#define SOFTIRQ_FUNCTIONS_MAX 16

struct stack_cell {
	__u64 samples;
	/* Sum of the sample periods, in the event's own unit (ns for cpu-clock). */
	__u64 weight;
	/* Sum of the squared periods, in units of WEIGHT_UNIT squared. */
	__u64 weight_squared;
	__u32 side;
	__u32 event;
	__u32 depth;
	/* In a softirq: owner of the packet that the CPU handled last (enum packet_owner). */
	__u32 owner;
	/*
	 * User-mode sample of a watched program (depth 0): its pid. frames[] then holds the address and two candidate
	 * return addresses.
	 */
	__u32 user_pid;
	__u32 pad;
	/*
	 * Name of the watched program's thread (comm, terminated by a 0); empty for other samples. With WATCH_ALL, the name
	 * and the cgroup of its process.
	 */
	__u64 thread[2];
	__u64 cgroup_id;
	__u64 frames[STACK_DEPTH];
};
_Static_assert(sizeof(struct stack_cell) == 72 + 8 * STACK_DEPTH, "stack_cell");

#include "abi_functions.h"
#include "abi_watch.h"

#endif

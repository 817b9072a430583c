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
/*
 * System call numbers of every supported architecture are below this, in its own table and in that of its 32-bit programs; those of
 * x32 begin at 512, where the others end. The calls of socketcall(2) have the last numbers of the table.
 */
#define SYSCALLS_MAX 1024
#define SOCKETCALLS 32
#define SOCKETCALLS_AT (SYSCALLS_MAX - SOCKETCALLS)

/* Who a sample or a call belongs to. SIDE_OTHER is any task that is not a target (ksoftirqd, idle, ...). */
enum side {
	SIDE_SENDER,
	SIDE_RECEIVER,
	SIDE_OTHER,
};
#define SIDE_TARGETS 2

/*
 * The syscalls that carry payload. The collector gives each its number and name (names.c). Our own traffic makes the
 * first ten; those from CALL_READ on are followed only when another program is watched, and only on the sockets of enum protocol.
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
	/* Into a pipe, of our own traffic only: no socket takes part in it. */
	CALL_VMSPLICE,
	CALL_READ,
	CALL_READV,
	CALL_WRITE,
	/* splice(2) out of a socket: the same number, told apart by its file descriptors. */
	CALL_SPLICE_READ,
	/* splice(2) into a socket of pages that are the program's own memory: of bytes, not of calls (pipe.bpf.h). */
	CALL_SPLICE_MEMORY,
	/* The same of pages that write(2) has filled: a copy was made, into the pipe. */
	CALL_SPLICE_WRITTEN,
	/* The same of pages that splice(2) has taken out of a socket. */
	CALL_SPLICE_RELAYED,
	/* getsockopt(2) with TCP_ZEROCOPY_RECEIVE, which maps what has arrived; with any other option it is none of these. */
	CALL_MAP,
	CALL_IO_URING,
	/* Payload that moved in none of these: in-kernel senders, system calls without a hook. */
	CALL_OTHER,
	CALL_CNT,
	/* In tables of numbers only: one of the calls of sockets, its number is the first argument (socketcall(2)). */
	CALL_SOCKETCALL = CALL_CNT,
};

/* The kernel's own numbers, and those of the 32-bit programs that it runs. */
enum number_table {
	NUMBERS,
	NUMBERS_32BIT,
	NUMBER_TABLES,
};

/* What the sampler counts; each is one perf event per CPU. */
enum sample_event {
	SAMPLE_CPU_CLOCK,
	SAMPLE_CYCLES,
	SAMPLE_REF_CYCLES,
	SAMPLE_LLC_LOAD_MISSES,
	SAMPLE_L1D_LOAD_MISSES,
	SAMPLE_CNT,
};

/* Programs that could not do their work say so here; every slot is read and printed. */
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
	/* copyscope itself, in a cgroup that it is asked to watch. */
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
	/* Of sendfile(2): a call to the socket for each pipe full of pages. */
	__u64 spliced_calls;
	__u64 spliced_bytes;
};
_Static_assert(sizeof(struct byte_cell) == 48, "byte_cell");

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
	/* Refused, but for what is asked again anyway (EAGAIN, EINTR); why the last one was. */
	__u64 failed;
	__u64 last_errno;
	__u64 total_ns[TIME_CNT];
	__u32 histogram[HIST_SLOTS];	/* of TIME_ON_CPU */
};
_Static_assert(sizeof(struct call_cell) == 72 + 4 * HIST_SLOTS, "call_cell");

/* The clock of one task that is inside a syscall. */
struct task_clock {
	__u64 enter_ns;
	__u64 off_cpu_since_ns;
	__u64 softirq_since_ns;
	__u64 spent_ns[TIME_CNT];
	__u32 call;
	__u32 protocol;
};
_Static_assert(sizeof(struct task_clock) == 56, "task_clock");

/* Whose packet a CPU handled last, and in which jiffy. */
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

/* What the squares of periods are counted in: in ns or cycles 64 bits would not do, and of misses periods are short. */
#define WEIGHT_UNIT(event) \
	((event) == SAMPLE_CPU_CLOCK || (event) == SAMPLE_CYCLES || (event) == SAMPLE_REF_CYCLES ? 1024 : 1)

struct stack_cell {
	__u64 samples;
	/* Sum of the sample periods, in the event's own unit (ns for cpu-clock). */
	__u64 weight;
	/* Sum of their squares, in units of WEIGHT_UNIT squared. */
	__u64 weight_squared;
	__u32 side;
	__u32 event;
	__u32 depth;
	/* Of SIDE_OTHER: whose packet the CPU handled last (enum packet_owner). */
	__u32 owner;
	/* Of a watched program in user mode (depth 0): its process; in frames[] the address, and two that may be return addresses. */
	__u32 user_pid;
	__u32 pad;
	/* Of a watched program: the name of the thread (comm), which ends with a 0; else empty. */
	__u64 thread[2];
	__u64 frames[STACK_DEPTH];
};
_Static_assert(sizeof(struct stack_cell) == 64 + 8 * STACK_DEPTH, "stack_cell");

#include "abi_functions.h"
#include "abi_watch.h"

#endif

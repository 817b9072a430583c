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

/* The syscalls that carry the traffic's payload. The collector gives each its number and name (names.c). */
enum call {
	CALL_NONE,
	CALL_RECVFROM,
	CALL_RECVMSG,
	CALL_RECVMMSG,
	CALL_SENDTO,
	CALL_SENDMSG,
	CALL_SENDMMSG,
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
	CATEGORY_DEFERRED,
	CATEGORY_COMPLETION,
	CATEGORY_COPY_OUT,
	CATEGORY_TRANSMIT,
	CATEGORY_SKB,
	CATEGORY_MEMORY,
	CATEGORY_SOFTIRQ,
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
};

/* Where a hooked function's bytes are. */
enum hook_bytes {
	BYTES_NONE,
	BYTES_RETURNED,
	BYTES_SKB_DATA_LEN,
};

/* Programs that could not do their work say so here; every slot is read and printed. */
enum loss {
	LOSS_STACK_MAP_FULL,
	LOSS_STACK_UNREADABLE,
	LOSS_TASK_MAP_FULL,
	LOSS_SHADOW_MAP_FULL,
	LOSS_SHADOW_OVERFLOW,
	LOSS_SHADOW_BROKEN,
	LOSS_COUNTER_UNREADABLE,
	LOSS_CNT,
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
	__u64 total_ns[TIME_CNT];
	__u32 histogram[TIME_CNT][HIST_SLOTS];
};
_Static_assert(sizeof(struct call_cell) == 48 + 4 * TIME_CNT * HIST_SLOTS, "call_cell");

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
	__u32 bracket;
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

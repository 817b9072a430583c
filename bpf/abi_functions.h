/* SPDX-License-Identifier: GPL-2.0 */
/* abi_functions.h - the part of abi.h that is about function hooks; include that one. */
#ifndef COPYSCOPE_ABI_FUNCTIONS_H
#define COPYSCOPE_ABI_FUNCTIONS_H

/* What a hooked function is: a copy, or what stands for one, each of which has cells; or what delimits copies. */
enum category {
	CATEGORY_COPY_IN,
	CATEGORY_PIN,
	CATEGORY_DEFERRED,
	CATEGORY_SILENT,
	CATEGORY_COPY_OUT,
	CATEGORY_MAPPED,
	CATEGORY_CNT,
	CATEGORY_SEND = CATEGORY_CNT,
	CATEGORY_RECEIVE,
	CATEGORY_SOFTIRQ,
	CATEGORY_NONE,
};

/* How a hooked function is followed. */
enum hook_kind {
	/* A copy, inside of a root or of a softirq. */
	KIND_SPAN,
	/* Copies are looked for from here on. */
	KIND_ROOT,
	/* As a span, and the bytes that the bracket announced were not copied after all. */
	KIND_REFERENCE,
	/* Its return is the beginning of a copy that no hook can see; the next event is its end. */
	KIND_BRACKET,
	/* Its entry ends a bracket. */
	KIND_MARK,
	/* As a span, but a part of the deferred copy where it runs inside one: that is charged as a whole. */
	KIND_PART,
	/* As a span, from the instructions that call the function to those after them; the function itself has no hook. */
	KIND_CALL,
	/*
	 * As a span that needs no root where our own traffic runs: a receiver that sleeps in its call when the hooks come has entered
	 * it unseen. In a program that is watched it copies in the same function from sockets that are no business of ours.
	 */
	KIND_OWN_ROOT,
};

/* Where a hooked function's bytes are. */
enum hook_bytes {
	BYTES_NONE,
	BYTES_RETURNED,
	BYTES_SKB_DATA_LEN,
	BYTES_CHECKED,
	BYTES_FOURTH_ARGUMENT,
	BYTES_SECOND_ARGUMENT,
	BYTES_FIFTH_ARGUMENT,
	BYTES_TAKEN,
	BYTES_INSERTED_PAGES,
};

/* Perf counters that are read with the clock, at most. */
#define COUNTERS_MAX 4
/* Pairs of looks in one run of the program that measures what they cost. */
#define LOOKS 8

/* One look at the clock and at the counters of this CPU. */
struct reading {
	__u64 ns;
	__u64 counters[COUNTERS_MAX];
};
_Static_assert(sizeof(struct reading) == 8 + 8 * COUNTERS_MAX, "reading");

/* Functions nested in each other at once; deeper ones are not followed. */
#define CALL_STACK_DEPTH 8
/* A power of two. */
#define CALL_STACKS_MAX 4096
/* Where the stack of a task is, or would be if others were not there before it: Fibonacci hashing (Knuth 6.4), 12 bits. */
#define CALL_STACK_PLACE(task, step) ((((__u32)(task) * 0x9e3779b9u >> 20) + (step)) & (CALL_STACKS_MAX - 1))
#define CONTEXTS 2

struct call_frame {
	__u64 bytes;
	__u32 category;
	/* enum function_row */
	__u32 row;
	/* Of a copy: whether it is timed, and whether one of its looks took too long to be one. */
	__u32 timed;
	__u32 stopped;
	/* Of a timed copy, without what interrupted it. */
	struct reading spent;
};
_Static_assert(sizeof(struct call_frame) == 24 + sizeof(struct reading), "call_frame");

/*
 * The functions that one task is in, its clock and its counters. Both are the task's own: those of the CPU less off_cpu, modulo
 * 2^64, because what a counter was on the CPU that was left and on the one that came may be in any order.
 */
struct call_stack {
	/* task_key(), and how many have wanted this place: 0 where it is free. */
	__u32 task;
	__u32 claims;
	__u32 depth;
	__u32 busy;
	/* How often off_cpu has grown. */
	__u32 switches;
	__u32 softirqs;
	/* Frames that are timed. */
	__u32 timed;
	/* Of the task, since its outermost call began. */
	__u32 side;
	/* Since when nothing has been charged to the innermost frame, if that is timed. */
	struct reading since;
	/*
	 * Of the CPU, when the task left it; ns is 0 while it runs. Written by sched_switch only, as off_cpu, but for softirqs that
	 * interrupt a program: off_cpu has their time, too. Of the stack of such a softirq: when it began.
	 */
	struct reading off_cpu_since;
	struct reading off_cpu;
	__u64 random;
	/* Copies until the end of this round of gate_one_in, and how many are left when one is timed. */
	__u32 gate_left;
	__u32 gate_pick;
	struct call_frame frames[CALL_STACK_DEPTH];
};
_Static_assert(sizeof(struct call_stack) == 48 + 3 * sizeof(struct reading) + CALL_STACK_DEPTH * sizeof(struct call_frame), "stack");

/* The unit of squares: of nanoseconds they would not fit. */
#define SQUARE_SHIFT 6

/* One per side, context (process, softirq) and category. Calls and bytes of all copies, the others of the timed ones. */
struct function_cell {
	__u64 calls;
	__u64 bytes;
	__u64 timed_calls;
	/* Sum of the square of what each took, in (64 ns)^2. */
	__u64 squares;
	struct reading self;
};
_Static_assert(sizeof(struct function_cell) == 32 + sizeof(struct reading), "function_cell");
#define FUNCTION_CELLS ((SIDE_OTHER + 1) * CONTEXTS * CATEGORY_CNT)

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

#endif

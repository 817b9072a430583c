/* SPDX-License-Identifier: GPL-2.0-only */
/* abi_functions.h - the part of abi.h for function hooks. Include abi.h, not this file. */
#ifndef COPYSCOPE_ABI_FUNCTIONS_H
#define COPYSCOPE_ABI_FUNCTIONS_H

/*
 * Role of a hooked function. Categories below CATEGORY_CNT are copies, or replace one, and have cells. The others
 * only delimit copies.
 */
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

/* How calls to a hooked function are traced. */
enum hook_kind {
	/* A copy. It counts only inside a call of a KIND_ROOT function, or in a softirq. */
	KIND_SPAN,
	/* A function, such as that of a send or a receive, inside which copies are measured. */
	KIND_ROOT,
	/* Like KIND_SPAN. In addition, the bytes that the bracket announced were not copied. */
	KIND_REFERENCE,
	/* The return of the function starts a copy that no hook can see. The next event ends that copy. */
	KIND_BRACKET,
	/* The entry of the function ends a bracket. */
	KIND_MARK,
	/*
	 * Like KIND_SPAN. Inside a deferred copy the function gets no frame, because the deferred copy is charged as a
	 * whole.
	 */
	KIND_PART,
	/*
	 * Like KIND_SPAN, but measured from the call instructions to the instructions after them. The function itself
	 * has no hook.
	 */
	KIND_CALL,
	/*
	 * Like KIND_SPAN, but in our own traffic the copy also counts outside of a KIND_ROOT function: if a receiver
	 * already sleeps in its call when the hooks attach, the entry of that call was not seen. In a watched program a
	 * KIND_ROOT function is required, because this function also copies from sockets that we do not follow.
	 */
	KIND_OWN_ROOT,
};

/* Where a hook finds the number of bytes that a function moves. */
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

/* Maximum number of perf counters that are read together with the clock. */
#define COUNTERS_MAX 4
/* Pairs of readings in one run of the program that measures their cost. */
#define LOOKS 8

/* Values of this CPU's clock and counters, read together. */
struct reading {
	__u64 ns;
	__u64 counters[COUNTERS_MAX];
};
_Static_assert(sizeof(struct reading) == 8 + 8 * COUNTERS_MAX, "reading");

/* Maximum number of nested functions; deeper ones are not followed. */
#define CALL_STACK_DEPTH 8
/* Maximum number of call stacks; must be a power of two. */
#define CALL_STACKS_MAX 4096
/*
 * Index of a task's stack, `step` entries after its first choice (linear probing). Fibonacci hashing (Knuth 6.4) to
 * 12 bits.
 */
#define CALL_STACK_PLACE(task, step) ((((__u32)(task) * 0x9e3779b9u >> 20) + (step)) & (CALL_STACKS_MAX - 1))
#define CONTEXTS 2

struct call_frame {
	__u64 bytes;
	__u32 category;
	/* enum function_row */
	__u32 row;
	/* Copies only: whether the copy is timed, and whether one of its readings was disturbed and is unusable. */
	__u32 timed;
	__u32 stopped;
	/* Timed copies only: time and counts of the copy, without interruptions. */
	struct reading spent;
};
_Static_assert(sizeof(struct call_frame) == 24 + sizeof(struct reading), "call_frame");

/*
 * The functions that one task is in, its clock and its counters. Both are the task's own: those of the CPU minus
 * off_cpu, modulo 2^64, because a counter of the new CPU may be above or below that of the old one.
 */
struct call_stack {
	/* task_key() of the owner, and the number of tasks that claimed this entry (0: free). */
	__u32 task;
	__u32 claims;
	__u32 depth;
	__u32 busy;
	/* Number of times that off_cpu has grown. */
	__u32 switches;
	__u32 softirqs;
	/* Number of timed frames on the stack. */
	__u32 timed;
	/* enum side of the task, read when its outermost call began. */
	__u32 side;
	/* Time up to which the innermost frame has been charged, if that frame is timed. */
	struct reading since;
	/*
	 * off_cpu_since: reading of the CPU when the task left it; ns is 0 while the task runs. off_cpu: sum
	 * of what the readings advanced while the task was off the CPU. Only sched_switch writes them, with one exception: a softirq that
	 * interrupts a program adds its time to off_cpu. In the stack of such a softirq, off_cpu_since holds the
	 * start of the softirq.
	 */
	struct reading off_cpu_since;
	struct reading off_cpu;
	__u64 random;
	/* Copies left in this round of gate_one_in, and the value of gate_left at which a copy is timed. */
	__u32 gate_left;
	__u32 gate_pick;
	struct call_frame frames[CALL_STACK_DEPTH];
};
_Static_assert(sizeof(struct call_stack) == 48 + 3 * sizeof(struct reading) + CALL_STACK_DEPTH * sizeof(struct call_frame), "stack");

/* Times are squared in units of 2^SQUARE_SHIFT ns, because squares of nanoseconds would overflow. */
#define SQUARE_SHIFT 6

/*
 * Sums of copies, one cell per side, context (process, softirq) and category. `calls` and `bytes` count all copies, the
 * other members the timed ones.
 */
struct function_cell {
	__u64 calls;
	__u64 bytes;
	__u64 timed_calls;
	/* Sum of the squared durations, in (64 ns)^2. */
	__u64 squares;
	struct reading self;
};
_Static_assert(sizeof(struct function_cell) == 32 + sizeof(struct reading), "function_cell");
#define FUNCTION_CELLS ((SIDE_OTHER + 1) * CONTEXTS * CATEGORY_CNT)

/*
 * Maximum number of zero-copy sends without a queued notification, one entry per ubuf_info; optmem_max bounds them
 * per socket.
 */
#define ZEROCOPY_USES_MAX 65536

/* State of a ubuf_info, from the first send that uses it to its notification. */
struct zerocopy_use {
	/* Time when the last send that used it returned; 0 while a send is still running. */
	__u64 returned_ns;
	__u32 side;
	__u32 sends;
	__u32 copied;
	__u32 pad;
};
_Static_assert(sizeof(struct zerocopy_use) == 24, "zerocopy_use");

/* The ubuf_info that a task's current send uses. */
struct zerocopy_send {
	__u64 ubuf;
	__u32 is_new;
	__u32 pad;
};
_Static_assert(sizeof(struct zerocopy_send) == 16, "zerocopy_send");

/*
 * Deferred copies: one cell per owner (or OWNER_UNKNOWN), side that executed them, and context (or CONTEXT_UNKNOWN).
 */
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

/* Notifications of the zero-copy sends of one side. A send is counted when its notification arrives. */
struct completion_cell {
	__u64 copied;
	__u64 zerocopied;
	__u64 notifications;
	__u64 before_return;
	__u32 histogram[HIST_SLOTS];
};
_Static_assert(sizeof(struct completion_cell) == 32 + 4 * HIST_SLOTS, "completion_cell");

#endif

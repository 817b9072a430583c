// SPDX-License-Identifier: GPL-2.0-only
/* Tests of bpf/call_stack.bpf.h, compiled for this machine, with a simulated clock, scheduler and result cells. */
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Replacements for the headers that call_stack.bpf.h includes. */
#define COPYSCOPE_CONTEXT_BPF_H
#define COPYSCOPE_CALL_STACKS_BPF_H
#define COPYSCOPE_FUNCTION_CELLS_BPF_H
#define COPYSCOPE_BOUNDED_BPF_H
#define BOUNDED(index, count) ((index) & ((count) - 1))
#define add_atomic(sum, part) (*(sum) += (part))
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define barrier() asm volatile("" ::: "memory")

#include "abi.h"
#include "check.h"

static __u64 lost[LOSS_CNT];
static __u32 functions_on = 1;
static struct call_stack stack;
/*
 * Time of the CPU's clock; duration of a reading of the clock; time for which the task is switched out during a reading.
 * `switched`: number of readings, from the next on, during which the task is switched out.
 */
static __u64 clock_ns, look_ns, switched_ns;
static int switched;
/* Number and total time of the copies that have ended. */
static __u64 copies, copied_ns;

#define SOFTIRQ_STACK 0x40000000u
#define bpf_get_current_pid_tgid() 1
#define bpf_get_smp_processor_id() 0

static void count_loss(enum loss what)
{
	lost[what]++;
}

static void copy_reading(struct reading *to, const struct reading *from)
{
	*to = *from;
}

static void add_between(struct reading *sum, const struct reading *earlier, const struct reading *later)
{
	sum->ns += later->ns - earlier->ns;
}

static void subtract_reading(struct reading *sum, const struct reading *part)
{
	sum->ns -= part->ns;
}

static __u64 read_now(struct reading *now, bool begins)
{
	__u64 before = clock_ns;

	clock_ns += look_ns;
	now->ns = begins ? clock_ns : before;
	if (switched) {
		switched--;
		clock_ns += switched_ns;
		stack.off_cpu.ns += switched_ns;
		stack.switches++;
	}
	return clock_ns - before;
}

static __u32 task_key(__u32 tid)
{
	return tid;
}

static __u32 current_side(void)
{
	return SIDE_SENDER;
}

static struct call_stack *find_stack(__u32 task)
{
	(void)task;
	return &stack;
}

static struct call_stack *make_stack(__u32 task)
{
	return find_stack(task);
}

static int count_copy(const struct call_stack *of, const struct call_frame *frame, __s64 bytes)
{
	(void)of;
	(void)bytes;
	if (frame->stopped)
		count_loss(LOSS_LOOK_STOPPED);
	if (!frame->timed || frame->stopped)
		return 0;
	copies++;
	copied_ns += frame->spent.ns;
	return 0;
}

#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wtype-limits"
#include "call_stack.bpf.h"

static void begin_send(void)
{
	memset(&stack, 0, sizeof(stack));
	memset(lost, 0, sizeof(lost));
	clock_ns = 1000000;
	look_ns = 10;
	look_limit_ns = 100;
	switched = 0;
	copies = copied_ns = 0;
	push(&stack, CATEGORY_SEND, 0, ROW_send);
	CHECK_EQUAL(stack.timed, 0);
}

/* Enter and leave a copy as enter() and leave() of functions.bpf.c do. */
static void enter_copy(__u32 category, __u32 row)
{
	charge(&stack);
	push(&stack, category, 0, row);
	resume_charging(&stack);
}

static void leave_copy(__u32 row)
{
	charge(&stack);
	CHECK(unwind(&stack, row));
	count_copy(&stack, top_frame(&stack), 0);
	pop(&stack);
	resume_charging(&stack);
}

TEST("stack: a copy has its own time, without what is around it and without its looks")
{
	begin_send();
	clock_ns += 500;
	enter_copy(CATEGORY_DEFERRED, ROW_deferred);
	clock_ns += 300;
	leave_copy(ROW_deferred);
	clock_ns += 700;
	CHECK_EQUAL(copies, 1);
	CHECK_EQUAL(copied_ns, 300);
	CHECK_EQUAL(stack.timed, 0);
	CHECK_EQUAL(stack.depth, 1);
}

TEST("stack: a softirq takes nothing from the copy that it interrupts, and its own copy is apart")
{
	begin_send();
	enter_copy(CATEGORY_COPY_IN, ROW_copy_in_call);
	clock_ns += 100;
	charge(&stack);
	push(&stack, CATEGORY_SOFTIRQ, 0, ROW_SOFTIRQ);
	CHECK_EQUAL(stack.softirqs, 1);
	clock_ns += 10000;
	enter_copy(CATEGORY_DEFERRED, ROW_deferred);
	clock_ns += 7;
	leave_copy(ROW_deferred);
	CHECK_EQUAL(copied_ns, 7);
	clock_ns += 10000;
	charge(&stack);
	CHECK(unwind(&stack, ROW_SOFTIRQ));
	pop(&stack);
	resume_charging(&stack);
	CHECK_EQUAL(stack.softirqs, 0);
	clock_ns += 20;
	leave_copy(ROW_copy_in_call);
	CHECK_EQUAL(copies, 2);
	CHECK_EQUAL(copied_ns, 127);
	CHECK_EQUAL(lost[LOSS_CALL_STACK_BROKEN], 0);
}

TEST("stack: time off the CPU is in no copy, also where a look is interrupted by it")
{
	begin_send();
	enter_copy(CATEGORY_COPY_OUT, ROW_copy_out);
	clock_ns += 40;
	switched = 2;
	switched_ns = 5000;
	leave_copy(ROW_copy_out);
	/* The time of the two repeated readings counts for the copy. */
	CHECK_EQUAL(copied_ns, 40 + 2 * look_ns);
	CHECK_EQUAL(lost[LOSS_LOOK_STOPPED], 0);
}

TEST("stack: a copy of which a look was stopped is left out and counted")
{
	begin_send();
	enter_copy(CATEGORY_COPY_OUT, ROW_copy_out);
	look_ns = 101;
	leave_copy(ROW_copy_out);
	CHECK_EQUAL(copies, 0);
	CHECK_EQUAL(lost[LOSS_LOOK_STOPPED], 1);
	enter_copy(CATEGORY_COPY_OUT, ROW_copy_out);
	look_ns = 100;
	leave_copy(ROW_copy_out);
	CHECK_EQUAL(lost[LOSS_LOOK_STOPPED], 2);
	enter_copy(CATEGORY_COPY_OUT, ROW_copy_out);
	leave_copy(ROW_copy_out);
	CHECK_EQUAL(copies, 1);
	CHECK_EQUAL(lost[LOSS_LOOK_STOPPED], 2);
}

TEST("stack: a bracket ends with the next event, and is no copy where that takes references")
{
	begin_send();
	push(&stack, CATEGORY_COPY_IN, 4096, ROW_BRACKET);
	resume_charging(&stack);
	clock_ns += 60;
	charge(&stack);
	end_bracket(&stack, 1);
	CHECK_EQUAL(copied_ns, 60);
	push(&stack, CATEGORY_COPY_IN, 4096, ROW_BRACKET);
	resume_charging(&stack);
	clock_ns += 60;
	charge(&stack);
	end_bracket(&stack, 0);
	CHECK_EQUAL(copies, 1);
	CHECK_EQUAL(stack.depth, 1);
	CHECK_EQUAL(stack.timed, 0);
}

TEST("stack: one copy in four is timed, and no other is looked at")
{
	begin_send();
	gate_one_in = 4;
	for (int i = 0; i < 4000; i++) {
		__u64 before = clock_ns;

		enter_copy(CATEGORY_COPY_OUT, ROW_copy_out);
		CHECK_EQUAL(clock_ns - before, stack.timed ? look_ns : 0);
		leave_copy(ROW_copy_out);
	}
	gate_one_in = 1;
	CHECK_EQUAL(copies, 1000);
}

TEST("stack: what did not fit is not followed")
{
	begin_send();
	while (stack.depth < CALL_STACK_DEPTH)
		push(&stack, CATEGORY_DEFERRED, 0, ROW_deferred);
	push(&stack, CATEGORY_SOFTIRQ, 0, ROW_SOFTIRQ);
	CHECK_EQUAL(lost[LOSS_CALL_STACK_OVERFLOW], 1);
	CHECK_EQUAL(stack.softirqs, 0);
	CHECK_EQUAL(stack.timed, CALL_STACK_DEPTH - 1);
	CHECK(!unwind(&stack, ROW_SOFTIRQ));
}

/* If the exit of a function did not fire, the end of the function around it drops its frame, and the copies are not counted. */
TEST("stack: what is unwound is over")
{
	begin_send();
	enter_copy(CATEGORY_MAPPED, ROW_map);
	enter_copy(CATEGORY_COPY_OUT, ROW_copy_out);
	CHECK_EQUAL(stack.timed, 2);
	leave_copy(ROW_map);
	CHECK_EQUAL(stack.depth, 1);
	CHECK_EQUAL(stack.timed, 0);
	CHECK_EQUAL(copies, 0);
	CHECK_EQUAL(lost[LOSS_CALL_STACK_BROKEN], 1);
}

/* Unwinding to a row that is not on the stack changes nothing. */
TEST("stack: nothing is unwound in vain")
{
	begin_send();
	push(&stack, CATEGORY_SOFTIRQ, 0, ROW_SOFTIRQ);
	CHECK(!unwind(&stack, ROW_send));
	CHECK_EQUAL(stack.softirqs, 1);
	CHECK_EQUAL(stack.depth, 2);
}

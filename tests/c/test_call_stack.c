/* The call stack of bpf/call_stack.bpf.h, compiled for this machine: the kernel and the cells are made up. */
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* In place of what call_stack.bpf.h includes. */
#define COPYSCOPE_CONTEXT_BPF_H
#define COPYSCOPE_FLUSH_BPF_H
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
static struct root_cell root_cells;
static struct call_stack stack;

#define SOFTIRQ_STACK 0x40000000u
#define CHARGED(context, category) (1u << ((context) * CATEGORY_SLOTS + (category)))
#define bpf_get_current_pid_tgid() 1
#define bpf_get_smp_processor_id() 0
#define bpf_map_lookup_elem(map, key) ((void)(key), (map))

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

static void add_reading(struct reading *sum, const struct reading *part)
{
	sum->ns += part->ns;
}

static void subtract_reading(struct reading *sum, const struct reading *part)
{
	sum->ns -= part->ns;
}

static void read_now(struct reading *now)
{
	now->ns = 0;
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

static struct function_cell *cell_of(const struct call_stack *of, __u32 category)
{
	(void)of;
	(void)category;
	return NULL;
}

static void count_call(const struct call_stack *of, __u32 category, __s64 bytes)
{
	(void)of;
	(void)category;
	(void)bytes;
}

static void add_spent(struct function_cell *cell, const struct reading *spent)
{
	(void)cell;
	(void)spent;
}

static int end_root(struct call_stack *of, const struct reading *now)
{
	(void)of;
	(void)now;
	return 0;
}

#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wtype-limits"
#include "call_stack.bpf.h"

static const struct reading now = { .ns = 1 };

static void begin_empty(void)
{
	memset(&stack, 0, sizeof(stack));
	memset(lost, 0, sizeof(lost));
	push(&stack, CATEGORY_SEND, 0, ROW_send, &now);
	CHECK_EQUAL(stack.softirqs, 0);
}

TEST("stack: a softirq counts while it is on the stack")
{
	begin_empty();
	push(&stack, CATEGORY_SOFTIRQ, 0, ROW_SOFTIRQ, &now);
	push(&stack, CATEGORY_TSQ, 0, ROW_tsq, &now);
	CHECK_EQUAL(stack.softirqs, 2);
	CHECK(unwind(&stack, ROW_tsq));
	pop(&stack, ROW_tsq, &now);
	CHECK_EQUAL(stack.softirqs, 1);
	CHECK(unwind(&stack, ROW_SOFTIRQ));
	pop(&stack, ROW_SOFTIRQ, &now);
	CHECK_EQUAL(stack.softirqs, 0);
	CHECK_EQUAL(stack.depth, 1);
	CHECK_EQUAL(lost[LOSS_CALL_STACK_BROKEN], 0);
}

TEST("stack: work that did not fit is no context")
{
	begin_empty();
	while (stack.depth < CALL_STACK_DEPTH)
		push(&stack, CATEGORY_SKB, 0, ROW_skb_alloc, &now);
	push(&stack, CATEGORY_TSQ, 0, ROW_tsq, &now);
	CHECK_EQUAL(lost[LOSS_CALL_STACK_OVERFLOW], 1);
	CHECK_EQUAL(stack.softirqs, 0);
	CHECK(!unwind(&stack, ROW_tsq));
	CHECK_EQUAL(stack.softirqs, 0);
}

/* Its exit did not fire: what was around it ends, and with it the context. */
TEST("stack: work that is unwound is over")
{
	begin_empty();
	push(&stack, CATEGORY_TSQ, 0, ROW_tsq, &now);
	push(&stack, CATEGORY_SKB, 0, ROW_skb_alloc, &now);
	CHECK_EQUAL(stack.softirqs, 1);
	CHECK(unwind(&stack, ROW_send));
	CHECK_EQUAL(stack.depth, 1);
	CHECK_EQUAL(stack.softirqs, 0);
	CHECK_EQUAL(lost[LOSS_CALL_STACK_BROKEN], 1);
}

/* A look for a row that is not there changes nothing. */
TEST("stack: nothing is unwound in vain")
{
	begin_empty();
	push(&stack, CATEGORY_TSQ, 0, ROW_tsq, &now);
	CHECK(!unwind(&stack, ROW_receive));
	CHECK_EQUAL(stack.softirqs, 1);
	CHECK_EQUAL(stack.depth, 2);
}

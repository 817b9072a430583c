/* The shadow stack of bpf/shadow.bpf.h, compiled for this machine: the kernel and the cells are made up. */
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* In place of what shadow.bpf.h includes. */
#define COPYSCOPE_CONTEXT_BPF_H
#define COPYSCOPE_SETTLE_BPF_H
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
static struct shadow shadow;

#define OVERLAY 0x40000000u
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

static struct shadow *find_shadow(__u32 task)
{
	(void)task;
	return &shadow;
}

static struct shadow *make_shadow(__u32 task)
{
	return find_shadow(task);
}

static struct function_cell *cell_of(const struct shadow *of, __u32 category)
{
	(void)of;
	(void)category;
	return NULL;
}

static void count_call(const struct shadow *of, __u32 category, __s64 bytes)
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

static int end_root(struct shadow *of, const struct reading *now)
{
	(void)of;
	(void)now;
	return 0;
}

#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wtype-limits"
#include "shadow.bpf.h"

static const struct reading now = { .ns = 1 };

static void begin_empty(void)
{
	memset(&shadow, 0, sizeof(shadow));
	memset(lost, 0, sizeof(lost));
	push(&shadow, CATEGORY_SEND, 0, ROW_send, &now);
	CHECK_EQUAL(shadow.softirqs, 0);
}

static void a_softirq_counts_while_it_is_on_the_stack(void)
{
	begin_empty();
	push(&shadow, CATEGORY_SOFTIRQ, 0, ROW_SOFTIRQ, &now);
	push(&shadow, CATEGORY_TSQ, 0, ROW_tsq, &now);
	CHECK_EQUAL(shadow.softirqs, 2);
	CHECK(unwind(&shadow, ROW_tsq));
	pop(&shadow, ROW_tsq, &now);
	CHECK_EQUAL(shadow.softirqs, 1);
	CHECK(unwind(&shadow, ROW_SOFTIRQ));
	pop(&shadow, ROW_SOFTIRQ, &now);
	CHECK_EQUAL(shadow.softirqs, 0);
	CHECK_EQUAL(shadow.depth, 1);
	CHECK_EQUAL(lost[LOSS_SHADOW_BROKEN], 0);
}

static void work_that_did_not_fit_is_no_context(void)
{
	begin_empty();
	while (shadow.depth < SHADOW_DEPTH)
		push(&shadow, CATEGORY_SKB, 0, ROW_skb_alloc, &now);
	push(&shadow, CATEGORY_TSQ, 0, ROW_tsq, &now);
	CHECK_EQUAL(lost[LOSS_SHADOW_OVERFLOW], 1);
	CHECK_EQUAL(shadow.softirqs, 0);
	CHECK(!unwind(&shadow, ROW_tsq));
	CHECK_EQUAL(shadow.softirqs, 0);
}

/* Its exit did not fire: what was around it ends, and with it the context. */
static void work_that_is_unwound_is_over(void)
{
	begin_empty();
	push(&shadow, CATEGORY_TSQ, 0, ROW_tsq, &now);
	push(&shadow, CATEGORY_SKB, 0, ROW_skb_alloc, &now);
	CHECK_EQUAL(shadow.softirqs, 1);
	CHECK(unwind(&shadow, ROW_send));
	CHECK_EQUAL(shadow.depth, 1);
	CHECK_EQUAL(shadow.softirqs, 0);
	CHECK_EQUAL(lost[LOSS_SHADOW_BROKEN], 1);
}

/* A look for a row that is not there changes nothing. */
static void nothing_is_unwound_in_vain(void)
{
	begin_empty();
	push(&shadow, CATEGORY_TSQ, 0, ROW_tsq, &now);
	CHECK(!unwind(&shadow, ROW_receive));
	CHECK_EQUAL(shadow.softirqs, 1);
	CHECK_EQUAL(shadow.depth, 2);
}

const struct test shadow_tests[] = {
	{ "shadow: a softirq counts while it is on the stack", a_softirq_counts_while_it_is_on_the_stack },
	{ "shadow: work that did not fit is no context", work_that_did_not_fit_is_no_context },
	{ "shadow: work that is unwound is over", work_that_is_unwound_is_over },
	{ "shadow: nothing is unwound in vain", nothing_is_unwound_in_vain },
	{ NULL, NULL },
};

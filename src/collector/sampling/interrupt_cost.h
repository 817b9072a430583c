/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * interrupt_cost.h - events that a sampling interrupt causes itself: its entry and its return are counted, and the row
 * that it interrupts gets them.
 */
#ifndef COLLECTOR_INTERRUPT_COST_H
#define COLLECTOR_INTERRUPT_COST_H

#include <linux/types.h>

struct bpf_program;
struct event_row;

struct interrupt_cost {
	/* Events of one interrupt, and the standard deviation of this mean. */
	double mean;
	double deviation;
	/* Reason why the cost is unknown; empty if it is known. */
	char reason[96];
};

/* Number of pairs of measurements behind a mean. */
#define INTERRUPT_COST_PAIRS 16

/*
 * Count each of `count` events while this thread copies memory in the kernel, without and with interrupts by the first
 * event, whose program adds to `interrupts`. Takes about 20 ms. The sampler must be disabled.
 */
void interrupt_cost__measure(const struct event_row *const rows[], int count, struct bpf_program *program,
			     const volatile __u64 *interrupts, struct interrupt_cost costs[]);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/* context.bpf.h - which task a program runs on, and whether on its own account or in softirq on top of it. */
#ifndef COPYSCOPE_CONTEXT_BPF_H
#define COPYSCOPE_CONTEXT_BPF_H

#include "target.bpf.h"

/* include/linux/preempt.h: set while softirqs are served; disabling them counts in the bits above. */
#define SERVING_SOFTIRQ 0x100

#if defined(__TARGET_ARCH_x86)
/* Read from BTF: 6.12 keeps the count in struct pcpu_hot, 6.1, 6.18 and 7.2 in a variable of its own. */
struct pcpu_hot___found {
	int preempt_count;
} __attribute__((preserve_access_index));

extern const int __preempt_count __ksym __weak;
extern const struct pcpu_hot___found pcpu_hot __ksym __weak;
#endif

/* Each CPU has an idle task of its own, and all have the tid 0. */
#define IDLE_TASK 0x80000000u

static __always_inline __u32 task_key(__u32 tid)
{
	return tid ? tid : IDLE_TASK | bpf_get_smp_processor_id();
}

/* 0 process, 1 softirq, CONTEXT_UNKNOWN where the count cannot be found. */
static __always_inline __u32 current_context(void)
{
	int count;

#if defined(__TARGET_ARCH_x86)
	if (&__preempt_count)
		count = *(const int *)bpf_this_cpu_ptr(&__preempt_count);
	else if (&pcpu_hot)
		count = ((const struct pcpu_hot___found *)bpf_this_cpu_ptr(&pcpu_hot))->preempt_count;
	else
		return CONTEXT_UNKNOWN;
#else
	count = BPF_CORE_READ(bpf_get_current_task_btf(), TASK_PREEMPT_COUNT);
#endif
	return !!(count & SERVING_SOFTIRQ);
}

#endif

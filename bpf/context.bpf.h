/* SPDX-License-Identifier: GPL-2.0-only */
/* context.bpf.h - the task that a program runs on, and whether it runs in that task's context or in a softirq. */
#ifndef COPYSCOPE_CONTEXT_BPF_H
#define COPYSCOPE_CONTEXT_BPF_H

#include "target.bpf.h"

/* Set while softirqs are served. Disabling softirqs counts in the bits above (include/linux/preempt.h). */
#define SERVING_SOFTIRQ 0x100

#if defined(__TARGET_ARCH_x86)
/* Looked up in BTF: 6.12 has the count in struct pcpu_hot; 6.1, 6.18 and 7.2 have it in a separate variable. */
struct pcpu_hot___found {
	int preempt_count;
} __attribute__((preserve_access_index));

extern const int __preempt_count __ksym __weak;
extern const struct pcpu_hot___found pcpu_hot __ksym __weak;
#endif

/* Every CPU has its own idle task, and all idle tasks have tid 0. */
#define IDLE_TASK 0x80000000u

static __always_inline __u32 task_key(__u32 tid)
{
	return tid ? tid : IDLE_TASK | bpf_get_smp_processor_id();
}

/* Return 0 for process context, 1 for softirq, CONTEXT_UNKNOWN if the preemption count cannot be found. */
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

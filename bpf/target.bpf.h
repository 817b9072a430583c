/* SPDX-License-Identifier: GPL-2.0 */
/* target.bpf.h - whose work is measured: the first test of every program. */
#ifndef COPYSCOPE_TARGET_BPF_H
#define COPYSCOPE_TARGET_BPF_H

#include <vmlinux.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "abi.h"

/* Written by the collector before anything is attached. 0 matches nothing: tgid 0 is the idle task. */
extern __u32 target_tgid[SIDE_TARGETS];
extern __u64 lost[LOSS_CNT];

static __always_inline __u32 side_of(__u32 tgid)
{
	if (tgid && tgid == target_tgid[SIDE_SENDER])
		return SIDE_SENDER;
	if (tgid && tgid == target_tgid[SIDE_RECEIVER])
		return SIDE_RECEIVER;
	return SIDE_OTHER;
}

static __always_inline __u32 current_side(void)
{
	return side_of(bpf_get_current_pid_tgid() >> 32);
}

static __always_inline void count_loss(enum loss what)
{
	__sync_fetch_and_add(&lost[what], 1);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* sampling.skel.h - replaces the skeleton of the sampler's BPF programs in unit tests. */
#ifndef TESTS_SAMPLING_SKEL_H
#define TESTS_SAMPLING_SKEL_H

#include <linux/types.h>

#include "abi.h"

struct bpf_program;

struct sampling {
	struct {
		struct bpf_program *on_cpu_clock, *on_cycles, *on_ref_cycles, *on_llc_load_misses, *on_l1d_load_misses;
	} progs;
	struct sampling__rodata {
		__u32 watch_mode;
		__u64 watch_cgroup_id;
		__u32 watch_cgroup_level;
		__u32 task_offsets[TASK_FIELDS];
	} *rodata;
	struct sampling__bss {
		__u32 trying;
		__u64 interrupts[SAMPLE_CNT];
	} *bss;
};

static inline struct sampling *sampling__open(void)
{
	return NULL;
}

static inline int sampling__load(struct sampling *skel)
{
	return skel != NULL;
}

static inline void sampling__destroy(struct sampling *skel)
{
	(void)skel;
}

#endif

// SPDX-License-Identifier: GPL-2.0-only
/* target.bpf.c - globals that all instruments share. */
#include "target.bpf.h"

__u32 target_tgid[SIDE_TARGETS];
__u64 lost[LOSS_CNT];
__u32 functions_on;

const volatile __u32 watch_mode;
const volatile __u64 watch_cgroup_id;
const volatile __u32 watch_cgroup_level;
const volatile __u32 watch_netns;
const volatile __u32 task_offsets[TASK_FIELDS];

__u32 watched_changes;
struct watched_map watched SEC(".maps");
struct last_side_map last_side SEC(".maps");

/*
 * The programs need a GPL-compatible license, because bpf_perf_event_read_value, bpf_get_stack and
 * bpf_probe_read_kernel are gpl_only (kernel/trace/bpf_trace.c).
 */
char LICENSE[] SEC("license") = "GPL";

// SPDX-License-Identifier: GPL-2.0
/* target.bpf.c - the globals that all instruments share. */
#include "target.bpf.h"

__u32 target_tgid[SIDE_TARGETS];
__u64 lost[LOSS_CNT];
__u32 functions_on;

const volatile __u32 watch_mode;
const volatile __u64 watch_cgroup_id;
const volatile __u32 watch_cgroup_level;
const volatile __u32 watch_netns;

__u32 watched_first;
__u32 watched_changes;
struct watched_map watched SEC(".maps");

/*
 * The GPL is not a matter of taste here: bpf_perf_event_read_value, bpf_get_stack and
 * bpf_probe_read_kernel are offered to GPL-compatible programs only (gpl_only in kernel/trace/bpf_trace.c).
 */
char LICENSE[] SEC("license") = "GPL";

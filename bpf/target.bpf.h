/* SPDX-License-Identifier: GPL-2.0-only */
/* target.bpf.h - determines whether a task is measured, the first test of every program. */
#ifndef COPYSCOPE_TARGET_BPF_H
#define COPYSCOPE_TARGET_BPF_H

#include <vmlinux.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "abi.h"
#include "arch.bpf.h"

/* Written by the collector before anything is attached. 0 matches nothing, because tgid 0 is the idle task. */
extern __u32 target_tgid[SIDE_TARGETS];
extern __u64 lost[LOSS_CNT];

/*
 * Set if another program is watched (enum watch_mode). Its processes are then the first side, whether they send or
 * receive. Read-only, so that in a run of our own traffic the verifier removes these branches.
 */
extern const volatile __u32 watch_mode;
extern const volatile __u64 watch_cgroup_id;
extern const volatile __u32 watch_cgroup_level;
/* Inode of the network namespace of the sockets that count; 0: all namespaces. */
extern const volatile __u32 watch_netns;
#define SIDE_WATCHED SIDE_SENDER
#define PF_KTHREAD 0x00200000
/*
 * Only for WATCH_ALL: offsets in struct task_struct. The collector reads them from BTF, because the sampler has no CO-RE
 * relocations.
 */
extern const volatile __u32 task_offsets[TASK_FIELDS];

/*
 * Set during the segments of function hooks, so that counting starts and stops at one moment, however long attaching
 * takes. While it is not set, the attached hooks are their own control.
 */
extern __u32 functions_on;

/* tgid -> enum watched_by */
struct watched_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, WATCHED_MAX);
	__type(key, __u32);
	__type(value, __u32);
};
extern struct watched_map watched SEC(".maps");

/* The last packet of each CPU; written by owner.bpf.c, read by the sampler. */
struct handled_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct handled_packet);
};

/* Number of changes to the map by programs of this object, incremented after each change. */
extern __u32 watched_changes;

/*
 * Result of the last search for the running process on each CPU: its tgid, whether it is watched (SIDE_IS_WATCHED), and
 * the number of changes by then in the bits above. One word, so that an interrupted program leaves no mixture.
 */
struct last_side_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
};
extern struct last_side_map last_side SEC(".maps");
#define SIDE_IS_WATCHED (1ULL << 32)
#define SIDE_CHANGES_SHIFT 33

static __always_inline __u32 side_of(__u32 tgid)
{
	if (watch_mode != WATCH_NOBODY) {
		const __u32 *by = bpf_map_lookup_elem(&watched, &tgid);

		return by && *by != WATCHED_NEVER ? SIDE_WATCHED : SIDE_OTHER;
	}
	if (tgid && tgid == target_tgid[SIDE_SENDER])
		return SIDE_SENDER;
	if (tgid && tgid == target_tgid[SIDE_RECEIVER])
		return SIDE_RECEIVER;
	return SIDE_OTHER;
}

/*
 * Like side_of(), for the running process. Programs of copyscope run at every send of the machine. Unless a watched
 * program is concerned, they must end here, within nanoseconds.
 */
static __always_inline __u32 side_of_running(__u32 tgid)
{
	__u64 search, found, *last;
	__u32 zero = 0, side;

	last = watch_mode != WATCH_NOBODY ? bpf_map_lookup_elem(&last_side, &zero) : NULL;
	if (!last)
		return side_of(tgid);
	/* Read the number before the search: a later change leads to another search. */
	search = (__u64)*(volatile __u32 *)&watched_changes << SIDE_CHANGES_SHIFT | tgid;
	found = *(volatile __u64 *)last;
	if ((found & ~SIDE_IS_WATCHED) == search)
		return found & SIDE_IS_WATCHED ? SIDE_WATCHED : SIDE_OTHER;
	side = side_of(tgid);
	*(volatile __u64 *)last = side == SIDE_WATCHED ? search | SIDE_IS_WATCHED : search;
	return side;
}

static __always_inline bool in_watched_netns(const struct sock *sk)
{
	return !watch_netns || BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) == watch_netns;
}

/*
 * Atomic addition that does not return the old value. Newer compilers translate even an unused __sync_fetch_and_add()
 * to an instruction that fetches it (BPF_FETCH, new in 5.12: commit 5ca419f2864a), for its memory ordering. A relaxed
 * addition always becomes an instruction that 5.10 knows.
 */
#define add_atomic(sum, part) ((void)__atomic_fetch_add(sum, part, __ATOMIC_RELAXED))

static __always_inline void count_loss(enum loss loss)
{
	add_atomic(&lost[loss], 1);
}

/* Watch a process. The sampler may have selected it before, without a change that the other object sees. */
static __always_inline void watch(__u32 tgid, __u32 by)
{
	bpf_map_update_elem(&watched, &tgid, &by, BPF_NOEXIST);
	if (bpf_map_lookup_elem(&watched, &tgid))
		add_atomic(&watched_changes, 1);
	else
		count_loss(LOSS_WATCHED_MAP_FULL);
}

static __always_inline bool never_watched(__u32 tgid)
{
	const __u32 *by = bpf_map_lookup_elem(&watched, &tgid);

	return by && *by == WATCHED_NEVER;
}

static __always_inline bool is_kernel_thread(void)
{
	__u32 flags = PF_KTHREAD;

	bpf_probe_read_kernel(&flags, sizeof(flags), (const void *)(bpf_get_current_task() + task_offsets[TASK_FLAGS]));
	return flags & PF_KTHREAD;
}

/* Read the name of the running process, which is that of its first thread, to a zeroed buffer. */
static __always_inline void read_program_name(char comm[WATCH_COMM])
{
	__u64 leader = 0;

	bpf_probe_read_kernel(&leader, sizeof(leader), (const void *)(bpf_get_current_task() + task_offsets[TASK_GROUP_LEADER]));
	bpf_probe_read_kernel_str(comm, WATCH_COMM, (const void *)(leader + task_offsets[TASK_COMM]));
}

static __always_inline bool selects_running_task(void)
{
	if (watch_mode == WATCH_CGROUP)
		return bpf_get_current_ancestor_cgroup_id(watch_cgroup_level) == watch_cgroup_id;
	return watch_mode == WATCH_ALL && !is_kernel_thread();
}

/*
 * Return the side of a running process that no change has selected: its cgroup or its kind decides, and is then
 * remembered.
 */
static __always_inline __u32 side_by_task(__u32 tgid)
{
	if (!selects_running_task() || never_watched(tgid))
		return SIDE_OTHER;
	watch(tgid, WATCHED_ITSELF);
	return SIDE_WATCHED;
}

static __always_inline __u32 current_side(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	__u32 side = side_of_running(tgid);

	return side == SIDE_OTHER ? side_by_task(tgid) : side;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/* target.bpf.h - whose work is measured: the first test of every program. */
#ifndef COPYSCOPE_TARGET_BPF_H
#define COPYSCOPE_TARGET_BPF_H

#include <vmlinux.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "abi.h"
#include "arch.bpf.h"

/* Written by the collector before anything is attached. 0 matches nothing: tgid 0 is the idle task. */
extern __u32 target_tgid[SIDE_TARGETS];
extern __u64 lost[LOSS_CNT];

/*
 * Another program is watched (enum watch_mode): its processes are the first side, whatever they do. Read-only, so that
 * the verifier takes the branches out of the programs of a run of our own traffic.
 */
extern const volatile __u32 watch_mode;
extern const volatile __u64 watch_cgroup_id;
extern const volatile __u32 watch_cgroup_level;
/* Only sockets of this network namespace; 0: of all. */
extern const volatile __u32 watch_netns;
#define SIDE_WATCHED SIDE_SENDER

/*
 * Set while the segments of function hooks go on: what they count begins and ends at one moment, whatever attaching takes, and where
 * it is not set they are their own control.
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

/* What each CPU handled last: written by owner.bpf.c, read by the sampler. */
struct handled_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct handled_packet);
};

/* One of them, which most calls are of: to look it up in the map is a third of what counting a call costs. */
extern __u32 watched_first;

/* How often the programs of this object have changed the map, counted after each change. */
extern __u32 watched_changes;

static __always_inline __u32 side_of(__u32 tgid)
{
	if (watch_mode != WATCH_NOBODY && tgid && tgid == watched_first)
		return SIDE_WATCHED;
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

static __always_inline bool in_watched_netns(const struct sock *sk)
{
	return !watch_netns || BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) == watch_netns;
}

/*
 * An addition whose old value is not used. Of __sync_fetch_and_add() newer compilers make an instruction that fetches it all the
 * same (BPF_FETCH, which came with 5.12: commit 5ca419f2864a), for its order in memory; of a relaxed one all make what 5.10 knows.
 */
#define add_atomic(sum, part) ((void)__atomic_fetch_add(sum, part, __ATOMIC_RELAXED))

static __always_inline void count_loss(enum loss what)
{
	add_atomic(&lost[what], 1);
}

static __always_inline void watch(__u32 tgid, __u32 by)
{
	if (!bpf_map_update_elem(&watched, &tgid, &by, BPF_NOEXIST))
		add_atomic(&watched_changes, 1);
	else if (!bpf_map_lookup_elem(&watched, &tgid))
		count_loss(LOSS_WATCHED_MAP_FULL);
}

static __always_inline bool never_watched(__u32 tgid)
{
	const __u32 *by = bpf_map_lookup_elem(&watched, &tgid);

	return by && *by == WATCHED_NEVER;
}

static __always_inline __u32 current_side(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;

	if (watch_mode == WATCH_CGROUP && side_of(tgid) == SIDE_OTHER) {
		if (bpf_get_current_ancestor_cgroup_id(watch_cgroup_level) != watch_cgroup_id || never_watched(tgid))
			return SIDE_OTHER;
		watch(tgid, WATCHED_ITSELF);
		return SIDE_WATCHED;
	}
	return side_of(tgid);
}

#endif

// SPDX-License-Identifier: GPL-2.0-only
/* watch.bpf.c - watched programs: determines which processes belong to one. */
#include "watch.bpf.h"

const volatile __u32 watch_follow = 1;
const volatile char watch_comm[WATCH_COMM];
/* Process that started the collector. Other children of this process are helpers, whatever their name. */
const volatile __u32 watch_master;

__u64 watch_totals[WATCH_TOTAL_CNT];

SEC("?tp_btf")
int BPF_PROG(on_process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 tgid = child->tgid;

	/* Helpers of copyscope, and their children. */
	if (watch_mode >= WATCH_CGROUP && (__u32)parent->tgid != tgid && never_watched(parent->tgid))
		watch(tgid, WATCHED_NEVER);
	if (side_of(parent->tgid) == SIDE_OTHER)
		return 0;
	add_total(WATCH_BIRTHS, 1);
	if ((__u32)parent->tgid != tgid) {
		if (!watch_follow)
			return 0;
		watch(tgid, WATCHED_BY_FORK);
		add_total(WATCH_FORKS, 1);
	}
	return 0;
}

/* Maximum number of threads that exit at the same time as the last one. */
#define ENDING_MOST 64

/*
 * Return the CPU time of all threads of a process whose last thread exits. Released threads are in a sum
 * (__exit_signal(), kernel/exit.c). Other threads are still in a list: the leader, and threads that have left `live`
 * but are still exiting, such as io_uring workers.
 */
static __always_inline __u64 process_ns(const struct task_struct *task)
{
	struct signal_struct *signal = BPF_CORE_READ(task, signal);
	__u64 head = (__u64)signal + bpf_core_field_offset(struct signal_struct, thread_head);
	__u64 ns = BPF_CORE_READ(signal, sum_sched_runtime);
	__u64 node = (__u64)BPF_CORE_READ(signal, thread_head.next);

	for (int i = 0; i < ENDING_MOST && node != head; i++) {
		struct task_struct *thread = (void *)(node - bpf_core_field_offset(struct task_struct, thread_node));

		ns += BPF_CORE_READ(thread, se.sum_exec_runtime);
		node = (__u64)BPF_CORE_READ(thread, thread_node.next);
	}
	return ns;
}

SEC("?tp_btf")
int BPF_PROG(on_process_exit, struct task_struct *task)
{
	__u32 tgid = task->tgid;

	/* do_exit() has already decremented `live` for this thread (kernel/exit.c): 0 means the last one. */
	if (BPF_CORE_READ(task, signal, live.counter))
		return 0;
	if (side_of(tgid) != SIDE_OTHER) {
		add_total(WATCH_ENDED_NS, process_ns(task));
		add_total(WATCH_EXITS, 1);
	} else if (watch_mode < WATCH_CGROUP) {
		return 0;
	}
	if (!bpf_map_delete_elem(&watched, &tgid))
		add_atomic(&watched_changes, 1);
	return 0;
}

SEC("?tp_btf")
int BPF_PROG(on_process_exec, struct task_struct *task)
{
	char comm[WATCH_COMM];

	if (!watch_comm[0] || (__u32)BPF_CORE_READ(task, real_parent, tgid) == watch_master)
		return 0;
	bpf_get_current_comm(comm, sizeof(comm));
	for (int i = 0; i < WATCH_COMM; i++) {
		if (comm[i] != watch_comm[i])
			return 0;
		if (!comm[i])
			break;
	}
	watch(task->tgid, WATCHED_ITSELF);
	return 0;
}

/* Write the counts of the sockets that have a stored value, for a reading by the collector. */
SEC("?iter/bpf_sk_storage_map")
int list_sockets(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct socket_cell *cell = ctx->value;

	if (cell)
		bpf_seq_write(ctx->meta->seq, cell, sizeof(*cell));
	return 0;
}

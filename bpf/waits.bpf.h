/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * waits.bpf.h - watched programs: how long threads sleep between a send with MSG_ZEROCOPY and its notification.
 *
 * A thread has waited if it slept after its send, read a notification that arrived meanwhile, and then sent again. A
 * thread that received anything before it sent again was idle, and the notification only woke it. io_uring
 * notifications count as read when they arrive.
 */
#ifndef COPYSCOPE_WAITS_BPF_H
#define COPYSCOPE_WAITS_BPF_H

#include "watch.bpf.h"

/* Keyed by thread. LRU, so that threads that have exited make room for new ones. */
struct waiting_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, TASKS_MAX);
	__type(key, __u32);
	__type(value, struct waiting_task);
};
extern struct waiting_map waiting_tasks SEC(".maps");

/* Set once the map has an entry, so that programs without zero-copy pay nothing when they receive. */
extern __u8 waiting_used;

struct buffer_cell_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROTOCOL_CNT);
	__type(key, __u32);
	__type(value, struct buffer_cell);
};
extern struct buffer_cell_map buffer_cells SEC(".maps");

static __always_inline struct buffer_cell *buffer_cell_of(__u32 protocol)
{
	return bpf_map_lookup_elem(&buffer_cells, &protocol);
}

static __always_inline struct waiting_task *waiting_task(void)
{
	__u32 tid = bpf_get_current_pid_tgid();

	return bpf_map_lookup_elem(&waiting_tasks, &tid);
}

/* Return how often the running thread has gone to sleep. */
static __always_inline __u64 voluntary_switches(void)
{
	if (!KNOWS_REGISTERS)
		return BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), nvcsw);
	return bpf_get_current_task_btf()->nvcsw;
}

static __always_inline void note_sent_on(struct buffer_cell *cell, __u64 now)
{
	struct waiting_task fresh = { .since_ns = now, .switches = voluntary_switches() }, *task = waiting_task();
	__u32 tid;

	if (task) {
		if (!task->has_a_reason) {
			cell->waits += task->waits;
			cell->waited_ns += task->waited_ns;
		}
		*task = fresh;
		return;
	}
	tid = bpf_get_current_pid_tgid();
	waiting_used = 1;
	if (bpf_map_update_elem(&waiting_tasks, &tid, &fresh, BPF_ANY))
		count_loss(LOSS_WATCHED_WAITING_MAP_FULL);
}

/*
 * Return true if a task sleeps on the socket, or has it in an epoll set. A thread that sleeps for a fixed time and
 * then polls does not count. The sleeper has already been woken (sk_error_report()), but leaves the queue only when
 * it runs.
 */
static __always_inline bool is_awaited(__u64 socket)
{
	struct socket_wq *queue = BPF_CORE_READ((const struct sock *)socket, sk_wq);

	return queue && (__u64)BPF_CORE_READ(queue, wait.head.next) != (__u64)__builtin_preserve_access_index(&queue->wait.head);
}

/*
 * Note that the thread has read a notification. noticed_ns is the time of the socket's last notification that a task
 * slept waiting for.
 */
static __always_inline void note_waited(__u64 noticed_ns, __u64 now)
{
	struct waiting_task *task = waiting_task();
	__u64 switches, waited, late = now - noticed_ns;

	if (!task || task->has_a_reason)
		return;
	switches = voluntary_switches();
	waited = noticed_ns - task->since_ns;
	if (switches != task->switches && (__s64)waited > 0 && (late < WAKE_UP_NS || late < waited)) {
		task->waits++;
		task->waited_ns += waited;
	}
	task->since_ns = now;
	task->switches = switches;
}

/*
 * Note that the thread has received something, or that a send found no room. Until it sends again, its sleep may have
 * other reasons than a notification.
 */
static __always_inline void note_reason_to_rest(void)
{
	struct waiting_task *task = waiting_used ? waiting_task() : NULL;

	if (task)
		task->has_a_reason = 1;
}

#endif

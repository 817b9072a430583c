// SPDX-License-Identifier: GPL-2.0
/* watch.bpf.c - a program that we did not write: who belongs to it. */
#include "map.bpf.h"
#include "watch.bpf.h"

const volatile __u32 watch_follow = 1;
const volatile char watch_comm[WATCH_COMM];
/* Who started the collector: what it starts are its helpers, whatever they are called. */
const volatile __u32 watch_master;

__u64 watch_totals[WATCH_TOTAL_CNT];
__u32 volume_away;

struct leaving_map leaving SEC(".maps");

/* Identifies the program behind each timer of a thread. */
const volatile __u32 timer_program;
/* enum births_wanted, written by the collector; how many were noted, and how many found no place. */
__u32 births_wanted;
__u32 births_noted;
__u32 births_lost;
/* Number of a thread -> enum birth */
MAP(HASH, births, __u32, __u32, BIRTHS_MAX);

/* Events of perf have one context in each thread; before 6.2 (commit bd2756811766) two, the second of which is that of timers. */
struct task_struct___one_context {
	struct perf_event_context *perf_event_ctxp;
} __attribute__((preserve_access_index));
struct task_struct___two_contexts {
	struct perf_event_context *perf_event_ctxp[2];
} __attribute__((preserve_access_index));

static __always_inline struct perf_event_context *events_of(const struct task_struct *task)
{
	if (bpf_core_field_exists(struct task_struct___two_contexts, perf_event_ctxp))
		return BPF_CORE_READ((const struct task_struct___two_contexts *)task, perf_event_ctxp[1]);
	return BPF_CORE_READ((const struct task_struct___one_context *)task, perf_event_ctxp);
}

/* Other events may be inherited as well, those of perf-stat(1) for one. */
static __always_inline bool has_timer(const struct task_struct *task)
{
	struct perf_event_context *context = events_of(task);
	void *head = (void *)context + bpf_core_field_offset(struct perf_event_context, event_list);
	void *entry = context ? BPF_CORE_READ(context, event_list.next) : head;

	for (int i = 0; i < EVENTS_LOOKED && entry && entry != head; i++) {
		struct perf_event *event = entry - bpf_core_field_offset(struct perf_event, event_entry);

		if (BPF_CORE_READ(event, prog, aux, id) == timer_program)
			return true;
		entry = BPF_CORE_READ(event, event_entry.next);
	}
	return false;
}

static __always_inline void note_birth(const struct task_struct *task)
{
	__u32 wanted = births_wanted, tid = task->pid, birth;

	if (wanted == BIRTHS_NONE)
		return;
	birth = has_timer(task) ? BIRTH_TIMED : BIRTH_UNTIMED;
	if (wanted != BIRTHS_ALL && birth == BIRTH_TIMED)
		return;
	if (bpf_map_update_elem(&births, &tid, &birth, BPF_ANY))
		add_atomic(&births_lost, 1);
	add_atomic(&births_noted, 1);
}

SEC("?tp_btf")
int BPF_PROG(on_process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 tgid = child->tgid;

	/* Our helpers, and theirs. */
	if (watch_mode == WATCH_CGROUP && (__u32)parent->tgid != tgid && never_watched(parent->tgid))
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
	note_birth(child);
	return 0;
}

SEC("?tp_btf")
int BPF_PROG(on_process_exit, struct task_struct *task)
{
	__u32 tgid = task->tgid;
	__u8 there = 1;

	/* do_exit() has counted this thread out already (kernel/exit.c): 0 was the last. */
	if (BPF_CORE_READ(task, signal, live.counter))
		return 0;
	if (side_of(tgid) != SIDE_OTHER)
		add_total(WATCH_EXITS, 1);
	else if (watch_mode != WATCH_CGROUP)
		return 0;
	if (tgid == watched_first)
		watched_first = 0;
	if (!bpf_map_delete_elem(&watched, &tgid))
		add_atomic(&watched_changes, 1);
	if (volume_away)
		bpf_map_update_elem(&leaving, &tgid, &there, BPF_ANY);
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

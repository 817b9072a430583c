// SPDX-License-Identifier: GPL-2.0-only
/*
 * calls.bpf.c - kernel time of every send and receive syscall, split into on-CPU, softirq and blocked.
 *
 * Each task has a clock: sys_enter starts it, sched_switch pauses it, sys_exit stops it. Softirq work that runs
 * inside the call is timed separately (on veth and lo: the peer's protocol work and the deferred copy). Blocked time
 * includes the wait for a CPU after the wake-up.
 */
#include "histogram.bpf.h"
#include "map.bpf.h"
#include "socket.bpf.h"

#define EINTR 4
#define EBADF 9
#define EAGAIN 11
#define ENOTSOCK 88
/* First of the kernel's internal error codes: the call is restarted, or was interrupted (include/linux/errno.h). */
#define ERESTARTSYS 512

/* Declared in system_call.bpf.h. */
const volatile __u8 call_of_nr[NUMBER_TABLES][SYSCALLS_MAX];
/* Number of calls being timed. While it is 0, the most frequent hooks cost one load. */
__u32 open_clocks;

MAP(HASH, clocks, __u32, struct task_clock, TASKS_MAX);
/* Keyed by thread, over all segments. LRU, so that threads that have exited make room for new ones. */
MAP(LRU_HASH, passed_on, __u32, struct passed, TASKS_MAX);
/* Sums over threads that have exited. */
__u64 relayed[RELAY_CNT];
MAP(PERCPU_ARRAY, call_cells, __u32, struct call_cell, CALL_CNT * SIDE_TARGETS);

static __always_inline struct call_cell *call_cell(__u32 side, __u32 call)
{
	__u32 index = side * CALL_CNT + call;

	return bpf_map_lookup_elem(&call_cells, &index);
}

static __always_inline void count_call(struct call_cell *cell, __u32 call, int ret)
{
	cell->calls++;
	/*
	 * These calls return numbers of requests or messages instead of bytes. Pages that vmsplice() puts into a pipe
	 * are moved by the splice() that follows.
	 */
	if (ret > 0 && call != CALL_IO_URING && call != CALL_SENDMMSG && call != CALL_RECVMMSG && call != CALL_VMSPLICE)
		cell->bytes += ret;
	if (ret > 0 && (__u64)ret > cell->largest_bytes)
		cell->largest_bytes = ret;
	if (ret < 0 && ret > -ERESTARTSYS && ret != -EAGAIN && ret != -EINTR) {
		cell->failed++;
		cell->last_errno = -ret;
	}
}

/*
 * Stop the task's clock, if it runs, so that the next call has a clock of its own. Return its call, or CALL_NONE.
 * Callers read the time after this function, so that an interrupt in between adds no softirq time from after the end.
 */
static __always_inline __u32 stop_clock(struct task_clock *clock)
{
	__u32 call = clock ? clock->call : CALL_NONE;

	if (call != CALL_NONE) {
		clock->call = CALL_NONE;
		add_atomic(&open_clocks, -1);
	}
	return call;
}

SEC("?tp_btf")
int BPF_PROG(on_syscall_enter, struct pt_regs *regs, long nr)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct task_clock fresh = {}, *clock;
	__u32 protocol = PROTOCOL_CNT;
	struct system_call syscall;
	__u32 tid = pid_tgid;
	__u32 call;

	if (side_of_running(pid_tgid >> 32) == SIDE_OTHER)
		return 0;
	call = read_system_call(&syscall, regs);
	if (call == CALL_NONE)
		return 0;
	if (watch_mode != WATCH_NOBODY) {
		call = watched_call(&syscall, &protocol);
		if (call == CALL_NONE || takes_no_payload(&syscall))
			return 0;
	}

	clock = bpf_map_lookup_elem(&clocks, &tid);
	if (!clock) {
		if (bpf_map_update_elem(&clocks, &tid, &fresh, BPF_ANY)) {
			count_loss(LOSS_TASK_MAP_FULL);
			return 0;
		}
		clock = bpf_map_lookup_elem(&clocks, &tid);
		if (!clock)
			return 0;
	}
	stop_clock(clock); /* still running: the exit of that call was not seen */
	clock->off_cpu_since_ns = 0;
	clock->softirq_since_ns = 0;
	clock->spent_ns[TIME_SOFTIRQ] = 0;
	clock->spent_ns[TIME_BLOCKED] = 0;
	add_atomic(&open_clocks, 1);
	clock->protocol = protocol;
	clock->enter_ns = bpf_ktime_get_ns();
	/* Start the clock last, so that an interrupt adds no softirq time from before the start. */
	barrier();
	clock->call = call;
	return 0;
}

/* splice(2) counts as one of two calls, depending on its direction (watched_call()). */
static __always_inline bool is_call(__u32 call, __u32 of_number)
{
	return call == of_number || (call == CALL_SPLICE_READ && of_number == CALL_SPLICE);
}

static __always_inline bool takes_sockets_only(__u32 call)
{
	return call == CALL_SENDTO || call == CALL_SENDMSG || call == CALL_SENDMMSG || call == CALL_RECVFROM || call == CALL_RECVMSG ||
	       call == CALL_RECVMMSG;
}

static __always_inline bool has_lost_its_file(__u32 fd, __u32 call, int ret)
{
	struct file *file = file_of_fd(fd);

	if (!file)
		return ret != -EBADF;
	return takes_sockets_only(call) && ret != -ENOTSOCK && ret != -EBADF && !socket_of_file(file);
}

/*
 * Another thread closed the file during this call and may have opened another in its place, so we cannot tell whether
 * it was a socket. A call that also works on other files may be counted as lost although it was not on a socket.
 */
static __always_inline void count_closed(const struct system_call *syscall, int ret)
{
	if (takes_no_payload(syscall) || (syscall->call == CALL_MAP && !is_mapping(syscall)))
		return;
	if (has_lost_its_file(FIRST_ARGUMENT(syscall), syscall->call, ret) ||
	    (syscall->call == CALL_SPLICE && has_lost_its_file(THIRD_ARGUMENT(syscall), syscall->call, ret)))
		count_loss(LOSS_CALL_FILE_CLOSED);
}

/* Sum up the bytes of stream sockets, between which splice(2) could move data. */
static __always_inline void note_passed(__u32 tid, __u32 protocol, __u32 call, long ret)
{
	struct passed fresh = {}, *passed;

	if (ret <= 0 || (!receives_message(call) && !sends_message(call)) ||
	    (protocol != PROTOCOL_TCP && protocol != PROTOCOL_MPTCP && protocol != PROTOCOL_UNIX_STREAM))
		return;
	passed = bpf_map_lookup_elem(&passed_on, &tid);
	if (!passed) {
		bpf_map_update_elem(&passed_on, &tid, &fresh, BPF_NOEXIST);
		passed = bpf_map_lookup_elem(&passed_on, &tid);
		if (!passed)
			return;
	}
	if (receives_message(call))
		passed->received_bytes += ret;
	else
		passed->sent_bytes += ret;
}

static __always_inline void keep_relayed(__u32 tid)
{
	const struct passed *passed = bpf_map_lookup_elem(&passed_on, &tid);

	if (passed && RELAYS(passed->received_bytes, passed->sent_bytes)) {
		add_atomic(&relayed[RELAY_THREADS], 1);
		add_atomic(&relayed[RELAY_RECEIVED], passed->received_bytes);
		add_atomic(&relayed[RELAY_SENT], passed->sent_bytes);
	}
	if (passed)
		bpf_map_delete_elem(&passed_on, &tid);
}

SEC("?tp_btf")
int BPF_PROG(on_syscall_exit, struct pt_regs *regs, int ret)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 side = side_of_running(pid_tgid >> 32);
	struct task_clock *clock;
	struct system_call syscall;
	struct call_cell *cell;
	__u32 tid = pid_tgid;
	__u32 call, timed;
	__u64 now, on_cpu_ns;

	if (side == SIDE_OTHER)
		return 0;
	call = read_system_call(&syscall, regs);
	if (call == CALL_NONE)
		return 0;
	/* A call that was entered before the programs were attached is counted but not timed. */
	clock = open_clocks ? bpf_map_lookup_elem(&clocks, &tid) : NULL;
	timed = stop_clock(clock);
	now = bpf_ktime_get_ns();
	if (is_call(timed, call)) {
		/*
		 * Use the call as determined at entry: another thread may have closed the file since, or opened
		 * another in its place.
		 */
		call = timed;
	} else {
		timed = CALL_NONE;
		if (watch_mode != WATCH_NOBODY) {
			__u32 protocol;

			call = watched_call(&syscall, &protocol);
			if (call == CALL_NONE)
				count_closed(&syscall, ret);
			if (call == CALL_NONE || takes_no_payload(&syscall))
				return 0;
		}
	}
	if (call == CALL_SPLICE_READ || call == CALL_MAP)
		splices_seen = SPLICES_SEEN;
	cell = call_cell(side, call);
	if (!cell)
		return 0;
	count_call(cell, call, ret);
	if (timed == CALL_NONE || !clock)
		return 0;
	note_passed(tid, clock->protocol, call, ret);
	on_cpu_ns = now - clock->enter_ns - clock->spent_ns[TIME_SOFTIRQ] - clock->spent_ns[TIME_BLOCKED];
	cell->timed++;
	cell->total_ns[TIME_ON_CPU] += on_cpu_ns;
	cell->total_ns[TIME_SOFTIRQ] += clock->spent_ns[TIME_SOFTIRQ];
	cell->total_ns[TIME_BLOCKED] += clock->spent_ns[TIME_BLOCKED];
	count_in(cell->histogram, on_cpu_ns);
	return 0;
}

static __always_inline struct task_clock *running_clock(__u32 tid)
{
	struct task_clock *clock = open_clocks ? bpf_map_lookup_elem(&clocks, &tid) : NULL;

	return clock && clock->call != CALL_NONE ? clock : NULL;
}

SEC("?tp_btf")
int BPF_PROG(on_task_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct task_clock *clock;

	if (!open_clocks)
		return 0;
	clock = running_clock(prev->pid);
	if (clock)
		clock->off_cpu_since_ns = bpf_ktime_get_ns();
	clock = running_clock(next->pid);
	if (clock && clock->off_cpu_since_ns) {
		clock->spent_ns[TIME_BLOCKED] += bpf_ktime_get_ns() - clock->off_cpu_since_ns;
		clock->off_cpu_since_ns = 0;
	}
	return 0;
}

/* Return the clock that softirq time on this CPU belongs to, or NULL unless a target's timed call was interrupted. */
static __always_inline struct task_clock *interrupted_clock(void)
{
	__u64 pid_tgid;

	if (!open_clocks)
		return NULL;
	pid_tgid = bpf_get_current_pid_tgid();
	return side_of_running(pid_tgid >> 32) != SIDE_OTHER ? running_clock(pid_tgid) : NULL;
}

SEC("?tp_btf")
int BPF_PROG(on_softirq_enter, unsigned int vec)
{
	struct task_clock *clock = interrupted_clock();

	if (clock)
		clock->softirq_since_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("?tp_btf")
int BPF_PROG(on_softirq_leave, unsigned int vec)
{
	struct task_clock *clock = interrupted_clock();

	if (clock && clock->softirq_since_ns) {
		clock->spent_ns[TIME_SOFTIRQ] += bpf_ktime_get_ns() - clock->softirq_since_ns;
		clock->softirq_since_ns = 0;
	}
	return 0;
}

/*
 * Forget a thread that exits, because its id may be reused. Stays attached for the whole run, like all of the
 * instrument `watch`.
 */
SEC("?tp_btf")
int BPF_PROG(on_thread_exit, struct task_struct *task)
{
	__u32 tid = task->pid;

	if (side_of(task->tgid) == SIDE_OTHER)
		return 0;
	keep_relayed(tid);
	stop_clock(bpf_map_lookup_elem(&clocks, &tid));
	bpf_map_delete_elem(&clocks, &tid);
	return 0;
}

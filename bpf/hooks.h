/* SPDX-License-Identifier: GPL-2.0 */
/*
 * hooks.h - one row per kernel hook, and the only place that names them.
 *
 * HOOK(id, instrument, tracepoint, need)
 *
 * id          the BPF program is on_<id>; the record calls the hook by this name
 * instrument  bytes | calls: switched together, segment by segment
 * tracepoint  attached as tp_btf; present when BTF has the typedef btf_trace_<tracepoint>
 * need        REQUIRED  without it the instrument does not run
 *             OPTIONAL  without it a column is missing, and says so
 *             FALLBACK  used only where the row before it is absent
 *
 * Which kernel has which tracepoint was read from BTF, never from a version number:
 * sock_send_length and sock_recv_length came with 6.3 (commit 6e6eda44b939), the others are older than 5.10.
 */
#ifndef COPYSCOPE_HOOKS_H
#define COPYSCOPE_HOOKS_H

#define HOOKS(HOOK) \
	HOOK(send_bytes, bytes, sock_send_length, OPTIONAL) \
	HOOK(send_bytes_at_exit, bytes, sys_exit, FALLBACK) \
	HOOK(receive_bytes, bytes, sock_recv_length, OPTIONAL) \
	HOOK(receive_bytes_at_exit, bytes, sys_exit, FALLBACK) \
	HOOK(copy_out_bytes, bytes, skb_copy_datagram_iovec, REQUIRED) \
	HOOK(syscall_enter, calls, sys_enter, REQUIRED) \
	HOOK(syscall_exit, calls, sys_exit, REQUIRED) \
	HOOK(task_switch, calls, sched_switch, REQUIRED) \
	HOOK(softirq_enter, calls, softirq_entry, REQUIRED) \
	HOOK(softirq_leave, calls, softirq_exit, REQUIRED)

#endif

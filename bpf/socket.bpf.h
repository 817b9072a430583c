/* SPDX-License-Identifier: GPL-2.0 */
/* socket.bpf.h - of a program that we did not write: which kind of socket is this file descriptor, and which way does a call go? */
#ifndef COPYSCOPE_SOCKET_BPF_H
#define COPYSCOPE_SOCKET_BPF_H

#include "bounded.bpf.h"
#include "target.bpf.h"

#define MSG_OOB 0x1
#define MSG_PEEK 0x2
#define MSG_TRUNC 0x20
#define MSG_ERRQUEUE 0x2000
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_MPTCP 262
#define TCP_ZEROCOPY_RECEIVE 35
#define S_IFMT 0170000
#define S_IFSOCK 0140000

#define SYSCALL_NR(regs) BPF_CORE_READ(regs, REG_SYSCALL)
/* Of registers that the verifier knows as such. */
#define SYSCALL_NR_KNOWN(regs) ((long)(regs)->REG_SYSCALL)
/* 5.15 (commit dd6e10fbd9fb): the registers of a task's system call, in a program that was not given them. */
#define KNOWS_REGISTERS bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs)
#define SYSCALL_FD(regs) BPF_CORE_READ(regs, REG_FIRST)
#define SYSCALL_SECOND(regs) BPF_CORE_READ(regs, REG_SECOND)
#define SYSCALL_THIRD(regs) BPF_CORE_READ(regs, REG_THIRD)
#define SYSCALL_FOURTH(regs) BPF_CORE_READ(regs, REG_FOURTH)
#define SYSCALL_FIFTH(regs) BPF_CORE_READ(regs, REG_FIFTH)

/* nr -> enum call, filled by the collector for its own architecture. */
extern const volatile __u8 call_of_nr[SYSCALLS_MAX];

/* A watched program has taken bytes out of a socket with splice(2). */
extern __u32 splices_seen;

static __always_inline __u32 call_of(long nr)
{
	return nr >= 0 && nr < SYSCALLS_MAX ? call_of_nr[BOUNDED(nr, SYSCALLS_MAX)] : CALL_NONE;
}

static __always_inline bool is_inet(__u16 family)
{
	return family == AF_INET || family == AF_INET6;
}

static __always_inline __u32 inet_protocol(__u32 protocol)
{
	switch (protocol) {
	case IPPROTO_TCP:
		return PROTOCOL_TCP;
	case IPPROTO_UDP:
		return PROTOCOL_UDP;
	case IPPROTO_MPTCP:
		return PROTOCOL_MPTCP;
	default:
		return PROTOCOL_CNT;
	}
}

/* close() of a socket in a sockmap, of whichever protocol (net/core/sock_map.c); 0: not known. */
extern __u64 sockmap_close;

static __always_inline __u32 unix_protocol(__u32 type)
{
	return type == SOCK_STREAM ? PROTOCOL_UNIX_STREAM : PROTOCOL_UNIX_DGRAM;
}

/* PROTOCOL_CNT when it is none of them, as are the sockets of netlink. */
static __always_inline __u32 protocol_of(const struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	if ((!is_inet(family) && family != AF_UNIX) || !in_watched_netns(sk))
		return PROTOCOL_CNT;
	if (sockmap_close && (__u64)BPF_CORE_READ(sk, __sk_common.skc_prot, close) == sockmap_close)
		return PROTOCOL_SOCKMAP;
	/* Both: a bit-field of 8 bits until 5.6, 16 bits wide since (commit bf9765145b85). */
	return family == AF_UNIX ? unix_protocol(BPF_CORE_READ(sk, sk_type)) : inet_protocol(BPF_CORE_READ(sk, sk_protocol));
}

static __always_inline bool is_given_in_sockmap(const struct sock *sk)
{
	return sockmap_close && (__u64)sk->__sk_common.skc_prot->close == sockmap_close;
}

/* Of a socket that a tracepoint was given: the verifier knows it, and loads do for what else takes a helper each. */
static __always_inline __u32 protocol_of_given(const struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;

	if ((!is_inet(family) && family != AF_UNIX) || !in_watched_netns(sk))
		return PROTOCOL_CNT;
	if (is_given_in_sockmap(sk))
		return PROTOCOL_SOCKMAP;
	return family == AF_UNIX ? unix_protocol(sk->sk_type) : inet_protocol(sk->sk_protocol);
}

/* NULL when it is no socket. */
static __always_inline struct sock *socket_of_file(const struct file *file)
{
	struct socket *socket;

	if ((BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return NULL;
	socket = BPF_CORE_READ(file, private_data);
	return BPF_CORE_READ(socket, sk);
}

static __always_inline struct file *file_of_fd(__u32 fd)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **files = BPF_CORE_READ(table, fd);
	struct file *file = NULL;

	if (fd >= BPF_CORE_READ(table, max_fds) || bpf_probe_read_kernel(&file, sizeof(file), files + fd))
		return NULL;
	return file;
}

static __always_inline struct sock *socket_of_fd(__u32 fd)
{
	struct file *file = file_of_fd(fd);

	return file ? socket_of_file(file) : NULL;
}

static __always_inline __u32 protocol_of_fd(__u32 fd)
{
	struct sock *sk = socket_of_fd(fd);

	return sk ? protocol_of(sk) : PROTOCOL_CNT;
}

static __always_inline struct sock *socket_of_call(struct pt_regs *regs, __u32 call)
{
	return socket_of_fd(call == CALL_SPLICE ? SYSCALL_THIRD(regs) : SYSCALL_FD(regs));
}

/* getsockopt(2) is many calls in one. Of level and option the kernel looks at 32 bits. */
static __always_inline bool is_mapping(struct pt_regs *regs)
{
	return (__u32)SYSCALL_THIRD(regs) == TCP_ZEROCOPY_RECEIVE && (__u32)SYSCALL_SECOND(regs) == IPPROTO_TCP;
}

/* The call as it is counted: CALL_NONE when no socket of enum protocol takes part in it. */
static __always_inline __u32 watched_call(__u32 call, struct pt_regs *regs, __u32 *protocol)
{
	*protocol = PROTOCOL_CNT;
	if (call == CALL_IO_URING)
		return call;
	if (call == CALL_MAP && !is_mapping(regs))
		return CALL_NONE;
	if (call != CALL_SPLICE) {
		*protocol = protocol_of_fd(SYSCALL_FD(regs));
	} else {
		*protocol = protocol_of_fd(SYSCALL_THIRD(regs));
		if (*protocol == PROTOCOL_CNT) {
			call = CALL_SPLICE_READ;
			*protocol = protocol_of_fd(SYSCALL_FD(regs));
		}
	}
	return *protocol == PROTOCOL_CNT ? CALL_NONE : call;
}

static __always_inline __u64 receive_flags(struct pt_regs *regs, __u32 call)
{
	return call == CALL_RECVFROM ? SYSCALL_FOURTH(regs) : call == CALL_RECVMSG ? SYSCALL_THIRD(regs) : 0;
}

/* Looking at what stays in the queue, or reading the error queue, moves no payload: such calls are not counted. */
static __always_inline bool is_looking(struct pt_regs *regs, __u32 call)
{
	return receive_flags(regs, call) & (MSG_PEEK | MSG_ERRQUEUE);
}

/* Calls that copy one message, or pin it, and return its bytes. */
static __always_inline bool sends_message(__u32 call)
{
	return call == CALL_SENDTO || call == CALL_SENDMSG || call == CALL_WRITE || call == CALL_WRITEV;
}

static __always_inline bool receives_message(__u32 call)
{
	return call == CALL_RECVFROM || call == CALL_RECVMSG || call == CALL_READ || call == CALL_READV;
}

static __always_inline enum direction direction_of(__u32 call)
{
	switch (call) {
	case CALL_RECVFROM:
	case CALL_RECVMSG:
	case CALL_RECVMMSG:
	case CALL_READ:
	case CALL_READV:
	case CALL_SPLICE_READ:
	case CALL_MAP:
		return DIRECTION_RECEIVE;
	default:
		return DIRECTION_SEND;
	}
}

#endif

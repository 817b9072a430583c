/* SPDX-License-Identifier: GPL-2.0 */
/* socket.bpf.h - of a program that we did not write: which kind of socket is this file descriptor, and which way does a call go? */
#ifndef COPYSCOPE_SOCKET_BPF_H
#define COPYSCOPE_SOCKET_BPF_H

#include "system_call.bpf.h"

#define MSG_OOB 0x1
#define MSG_PEEK 0x2
#define MSG_TRUNC 0x20
#define MSG_ERRQUEUE 0x2000
#define MSG_ZEROCOPY 0x4000000
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_MPTCP 262
#define TCP_ZEROCOPY_RECEIVE 35
#define S_IFMT 0170000
#define S_IFSOCK 0140000

/* A watched program has taken bytes out of a socket with splice(2). */
extern __u32 splices_seen;

static __always_inline bool is_inet(__u16 family)
{
	return family == AF_INET || family == AF_INET6;
}

/* A raw socket has the number of what it reads, headers and all. */
static __always_inline __u32 inet_protocol(__u32 type, __u32 protocol)
{
	if (type == SOCK_RAW)
		return PROTOCOL_CNT;
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
	__u32 type;

	if ((!is_inet(family) && family != AF_UNIX) || !in_watched_netns(sk))
		return PROTOCOL_CNT;
	if (sockmap_close && (__u64)BPF_CORE_READ(sk, __sk_common.skc_prot, close) == sockmap_close)
		return PROTOCOL_SOCKMAP;
	/* Both: a bit-field of 8 bits until 5.6, 16 bits wide since (commit bf9765145b85). */
	type = BPF_CORE_READ(sk, sk_type);
	return family == AF_UNIX ? unix_protocol(type) : inet_protocol(type, BPF_CORE_READ(sk, sk_protocol));
}

/* Of a socket that a tracepoint was given: the verifier knows it, and loads do for what else takes a helper each. */
static __always_inline __u32 protocol_of_given(const struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;

	if ((!is_inet(family) && family != AF_UNIX) || !in_watched_netns(sk))
		return PROTOCOL_CNT;
	if (sockmap_close && (__u64)sk->__sk_common.skc_prot->close == sockmap_close)
		return PROTOCOL_SOCKMAP;
	return family == AF_UNIX ? unix_protocol(sk->sk_type) : inet_protocol(sk->sk_type, sk->sk_protocol);
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

/* call: as it is counted (watched_call()). */
static __always_inline struct sock *socket_of_call(const struct system_call *made, __u32 call)
{
	return socket_of_fd(call == CALL_SPLICE ? THIRD_ARGUMENT(made) : FIRST_ARGUMENT(made));
}

/* getsockopt(2) is many calls in one. Of level and option the kernel looks at 32 bits. */
static __always_inline bool is_mapping(const struct system_call *made)
{
	return (__u32)THIRD_ARGUMENT(made) == TCP_ZEROCOPY_RECEIVE && (__u32)SECOND_ARGUMENT(made) == IPPROTO_TCP;
}

/* The call as it is counted: CALL_NONE when no socket of enum protocol takes part in it. */
static __always_inline __u32 watched_call(const struct system_call *made, __u32 *protocol)
{
	__u32 call = made->call;

	*protocol = PROTOCOL_CNT;
	if (call == CALL_IO_URING)
		return call;
	if (call == CALL_MAP && !is_mapping(made))
		return CALL_NONE;
	if (call != CALL_SPLICE) {
		*protocol = protocol_of_fd(FIRST_ARGUMENT(made));
	} else {
		*protocol = protocol_of_fd(THIRD_ARGUMENT(made));
		if (*protocol == PROTOCOL_CNT) {
			call = CALL_SPLICE_READ;
			*protocol = protocol_of_fd(FIRST_ARGUMENT(made));
		}
	}
	return *protocol == PROTOCOL_CNT ? CALL_NONE : call;
}

static __always_inline __u64 receive_flags(const struct system_call *made)
{
	return made->call == CALL_RECVFROM ? FOURTH_ARGUMENT(made) : made->call == CALL_RECVMSG ? THIRD_ARGUMENT(made) : 0;
}

/* Looking at what stays in the queue, or reading the error queue, moves no payload: such calls are not counted. */
static __always_inline bool is_looking(const struct system_call *made)
{
	return receive_flags(made) & (MSG_PEEK | MSG_ERRQUEUE);
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

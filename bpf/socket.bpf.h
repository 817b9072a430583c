/* SPDX-License-Identifier: GPL-2.0-only */
/* socket.bpf.h - watched programs: kind of socket behind a file descriptor, and direction of a call. */
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

/*
 * How it is known that a watched program takes bytes from a socket with splice(2) or maps them: by the call itself, or
 * only by a send of these bytes, because the kernel has no cheap hook where a UNIX socket is spliced.
 */
enum splices_seen { SPLICES_UNSEEN, SPLICES_SEEN, SPLICES_SEEN_AS_SENT };
extern __u32 splices_seen;
/* Set once the hook that counts these bytes is attached. */
extern __u32 splices_counted;

static __always_inline bool is_inet(__u16 family)
{
	return family == AF_INET || family == AF_INET6;
}

/* Raw sockets have the protocol number of the packets that they read with headers, and do not count. */
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

/* Address of the close() of sockets in a sockmap, the same for every protocol (net/core/sock_map.c); 0 if unknown. */
extern __u64 sockmap_close;

static __always_inline __u32 unix_protocol(__u32 type)
{
	return type == SOCK_STREAM ? PROTOCOL_UNIX_STREAM : PROTOCOL_UNIX_DGRAM;
}

/* Return the protocol of a socket, or PROTOCOL_CNT for sockets of other kinds, such as netlink. */
static __always_inline __u32 protocol_of(const struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
	__u32 type;

	if ((!is_inet(family) && family != AF_UNIX) || !in_watched_netns(sk))
		return PROTOCOL_CNT;
	if (sockmap_close && (__u64)BPF_CORE_READ(sk, __sk_common.skc_prot, close) == sockmap_close)
		return PROTOCOL_SOCKMAP;
	/* Both members are bit-fields until 5.6 (8 bits), and 16-bit members since (commit bf9765145b85). */
	type = BPF_CORE_READ(sk, sk_type);
	return family == AF_UNIX ? unix_protocol(type) : inet_protocol(type, BPF_CORE_READ(sk, sk_protocol));
}

/*
 * Like protocol_of(), for a socket from a tracepoint. The verifier knows it, so its fields can be loaded directly
 * instead of by a helper.
 */
static __always_inline __u32 protocol_of_given(const struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;

	if ((!is_inet(family) && family != AF_UNIX) || !in_watched_netns(sk))
		return PROTOCOL_CNT;
	if (sockmap_close && (__u64)sk->__sk_common.skc_prot->close == sockmap_close)
		return PROTOCOL_SOCKMAP;
	return family == AF_UNIX ? unix_protocol(sk->sk_type) : inet_protocol(sk->sk_type, sk->sk_protocol);
}

/* Return the socket of a file, or NULL if the file is no socket. */
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
	struct file *file = NULL, **files;
	const struct fdtable *table;
	__u32 count;

	if (KNOWS_REGISTERS) {
		table = bpf_get_current_task_btf()->files->fdt;
		files = table->fd;
		count = table->max_fds;
	} else {
		table = BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), files, fdt);
		files = BPF_CORE_READ(table, fd);
		count = BPF_CORE_READ(table, max_fds);
	}
	if (fd >= count || bpf_probe_read_kernel(&file, sizeof(file), files + fd))
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

/* Return the socket of a call; `call` is the result of watched_call(). */
static __always_inline struct sock *socket_of_call(const struct system_call *syscall, __u32 call)
{
	return socket_of_fd(call == CALL_SPLICE ? THIRD_ARGUMENT(syscall) : FIRST_ARGUMENT(syscall));
}

/*
 * Return true for TCP_ZEROCOPY_RECEIVE, the only option of getsockopt(2) that counts. The kernel reads 32 bits of level
 * and option.
 */
static __always_inline bool is_mapping(const struct system_call *syscall)
{
	return (__u32)THIRD_ARGUMENT(syscall) == TCP_ZEROCOPY_RECEIVE && (__u32)SECOND_ARGUMENT(syscall) == IPPROTO_TCP;
}

/* Return the counted call, or CALL_NONE if no socket of enum protocol takes part in the call. */
static __always_inline __u32 watched_call(const struct system_call *syscall, __u32 *protocol)
{
	__u32 call = syscall->call;

	*protocol = PROTOCOL_CNT;
	if (call == CALL_IO_URING)
		return call;
	if (call == CALL_MAP && !is_mapping(syscall))
		return CALL_NONE;
	if (call != CALL_SPLICE) {
		*protocol = protocol_of_fd(FIRST_ARGUMENT(syscall));
	} else {
		*protocol = protocol_of_fd(THIRD_ARGUMENT(syscall));
		if (*protocol == PROTOCOL_CNT) {
			call = CALL_SPLICE_READ;
			*protocol = protocol_of_fd(FIRST_ARGUMENT(syscall));
		}
	}
	return *protocol == PROTOCOL_CNT ? CALL_NONE : call;
}

static __always_inline __u64 receive_flags(const struct system_call *syscall)
{
	return syscall->call == CALL_RECVFROM ? FOURTH_ARGUMENT(syscall) : syscall->call == CALL_RECVMSG ? THIRD_ARGUMENT(syscall) : 0;
}

/* Return true for calls with MSG_PEEK or MSG_ERRQUEUE, which take no payload from the queue and are not counted. */
static __always_inline bool takes_no_payload(const struct system_call *syscall)
{
	return receive_flags(syscall) & (MSG_PEEK | MSG_ERRQUEUE);
}

/* Return true for calls that copy or pin one message and return its number of bytes. */
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

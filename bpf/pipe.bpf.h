/* SPDX-License-Identifier: GPL-2.0 */
/* pipe.bpf.h - splice(2) from a pipe into a socket: whose pages does it send? */
#ifndef COPYSCOPE_PIPE_BPF_H
#define COPYSCOPE_PIPE_BPF_H

#include "socket.bpf.h"

/*
 * The try_steal() of the pages that vmsplice(2) puts into a pipe (user_page_pipe_buf_ops, fs/splice.c), and of those that
 * write(2) fills (anon_pipe_buf_ops, fs/pipe.c). Those of a socket's packets have none, and this release() (skb_splice_bits(),
 * nosteal_pipe_buf_ops). 0: not known.
 */
extern __u64 memory_page_steal;
extern __u64 written_page_steal;
extern __u64 packet_page_release;

/* Read from BTF: from 6.14 on the indices are in an unnamed union (commit 3d252160b818). */
struct pipe_inode_info___found {
	unsigned int tail;
	unsigned int ring_size;
	struct pipe_buffer *bufs;
} __attribute__((preserve_access_index));

struct pipe_buf_operations___found {
	void *try_steal;
	void *release;
} __attribute__((preserve_access_index));

/*
 * What is next in the pipe of this splice(2): memory that the program gave by reference (vmsplice(2)), bytes that somebody wrote,
 * pages of packets that came out of a socket, or pages of a file and anything else. While the socket takes it the pipe is locked,
 * and the pages are in it still (splice_to_socket()).
 */
static __always_inline __u32 splice_of_pipe(const struct system_call *made)
{
	const struct pipe_inode_info___found *pipe;
	const struct pipe_buf_operations___found *ops;
	const struct pipe_buffer *buffer;
	struct file *file;
	__u64 steal;

	file = memory_page_steal || written_page_steal || packet_page_release ? file_of_fd(FIRST_ARGUMENT(made)) : NULL;
	if (!file)
		return CALL_SPLICE;
	pipe = BPF_CORE_READ(file, private_data);
	buffer = BPF_CORE_READ(pipe, bufs) + (BPF_CORE_READ(pipe, tail) & (BPF_CORE_READ(pipe, ring_size) - 1));
	ops = (const void *)BPF_CORE_READ(buffer, ops);
	steal = (__u64)BPF_CORE_READ(ops, try_steal);
	if (!steal)
		return packet_page_release && (__u64)BPF_CORE_READ(ops, release) == packet_page_release ? CALL_SPLICE_RELAYED
												       : CALL_SPLICE;
	return steal == memory_page_steal ? CALL_SPLICE_MEMORY : steal == written_page_steal ? CALL_SPLICE_WRITTEN : CALL_SPLICE;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/* pipe.bpf.h - splice(2) from a pipe into a socket: whose pages does it send? */
#ifndef COPYSCOPE_PIPE_BPF_H
#define COPYSCOPE_PIPE_BPF_H

#include "socket.bpf.h"

/* The try_steal() of the pages that vmsplice(2) puts into a pipe (fs/splice.c); 0: not known. */
extern __u64 memory_page_steal;

/* Read from BTF: from 6.14 on the indices are in an unnamed union (commit 3d252160b818). */
struct pipe_inode_info___found {
	unsigned int tail;
	unsigned int ring_size;
	struct pipe_buffer *bufs;
} __attribute__((preserve_access_index));

struct pipe_buf_operations___found {
	void *try_steal;
} __attribute__((preserve_access_index));

/*
 * Whether what is next in the pipe of this splice(2) is memory that the program gave by reference (vmsplice(2)), and no page
 * of a file. While the socket takes it the pipe is locked, and the pages are in it still (splice_to_socket()).
 */
static __always_inline bool sends_memory(struct pt_regs *regs)
{
	const struct pipe_inode_info___found *pipe;
	const struct pipe_buf_operations___found *ops;
	const struct pipe_buffer *buffer;
	struct file *file;

	if (!memory_page_steal)
		return false;
	file = file_of_fd(SYSCALL_FD(regs));
	if (!file)
		return false;
	pipe = BPF_CORE_READ(file, private_data);
	buffer = BPF_CORE_READ(pipe, bufs) + (BPF_CORE_READ(pipe, tail) & (BPF_CORE_READ(pipe, ring_size) - 1));
	ops = (const void *)BPF_CORE_READ(buffer, ops);
	return (__u64)BPF_CORE_READ(ops, try_steal) == memory_page_steal;
}

#endif

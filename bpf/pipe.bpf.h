/* SPDX-License-Identifier: GPL-2.0-only */
/* pipe.bpf.h - origin of the bytes that splice(2) moves from a pipe into a socket. */
#ifndef COPYSCOPE_PIPE_BPF_H
#define COPYSCOPE_PIPE_BPF_H

#include "io_request.bpf.h"

/*
 * Addresses of kernel functions that identify pages in a pipe; 0 if unknown. The first two are try_steal() of pages
 * from vmsplice(2) (user_page_pipe_buf_ops, fs/splice.c) and of pages filled by write(2) (anon_pipe_buf_ops,
 * fs/pipe.c). Pages of received packets have no try_steal(), and the third as release() (nosteal_pipe_buf_ops, used
 * by skb_splice_bits()).
 */
extern __u64 memory_page_steal;
extern __u64 written_page_steal;
extern __u64 packet_page_release;

/* One pass of splice(2) gives a socket at most this many buffers (splice_to_socket(), fs/splice.c). */
#define SPLICED_BUFFERS_MAX 16

/* Looked up in BTF, because 6.14 moved the indices into an unnamed union (commit 3d252160b818). */
struct pipe_inode_info___found {
	unsigned int tail;
	unsigned int ring_size;
	struct pipe_buffer *bufs;
} __attribute__((preserve_access_index));

struct pipe_buf_operations___found {
	void *try_steal;
	void *release;
} __attribute__((preserve_access_index));

/* Origin of a page in a pipe, and the call as which it is counted: CALL_SPLICE and the three after CALL_SPLICE_READ. */
enum page_origin {
	/* A file, and everything else. */
	PAGE_OF_FILE,
	/* Memory that the program passed by reference with vmsplice(2). */
	PAGE_OF_MEMORY,
	/* Bytes that write(2) had copied into the pipe. */
	PAGE_WRITTEN,
	/* A received packet. */
	PAGE_OF_PACKET,
	PAGE_ORIGINS,
};

static __always_inline __u32 call_of_origin(enum page_origin origin)
{
	return origin == PAGE_OF_FILE ? CALL_SPLICE : CALL_SPLICE_MEMORY + origin - PAGE_OF_MEMORY;
}

static __always_inline enum page_origin origin_of_pages(const struct pipe_buf_operations___found *ops)
{
	__u64 steal = (__u64)BPF_CORE_READ(ops, try_steal);

	if (!steal)
		return packet_page_release && (__u64)BPF_CORE_READ(ops, release) == packet_page_release ? PAGE_OF_PACKET
												       : PAGE_OF_FILE;
	return steal == memory_page_steal ? PAGE_OF_MEMORY : steal == written_page_steal ? PAGE_WRITTEN : PAGE_OF_FILE;
}

/* Return the pipe of a splice(2) call, or of the request of an io_uring worker; NULL if it is not found. */
static __always_inline struct file *spliced_pipe(const struct system_call *syscall)
{
	const struct io_kiocb___found *request;

	if (syscall->call == CALL_SPLICE)
		return file_of_fd(FIRST_ARGUMENT(syscall));
	request = request_of_worker();
	return request ? spliced_file(request) : NULL;
}

#endif

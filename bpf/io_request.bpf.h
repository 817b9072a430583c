/* SPDX-License-Identifier: GPL-2.0-only */
/* io_request.bpf.h - fields of an io_uring request, read when it completes. */
#ifndef COPYSCOPE_IO_REQUEST_BPF_H
#define COPYSCOPE_IO_REQUEST_BPF_H

#include "socket.bpf.h"

/* include/uapi/linux/io_uring.h */
#define IORING_OP_READV 1
#define IORING_OP_READ_FIXED 4
#define IORING_OP_SENDMSG 9
#define IORING_OP_READ 22
#define IORING_OP_SEND 26
#define IORING_OP_SPLICE 30
#define IORING_OP_TEE 33
#define IORING_OP_SEND_ZC 47
#define IORING_OP_SENDMSG_ZC 48
#define IORING_OP_READ_MULTISHOT 49
#define IORING_OP_READV_FIXED 60
#define IORING_CQE_F_MORE (1U << 1)
#define IORING_CQE_F_NOTIF (1U << 3)
#define IORING_RECVSEND_FIXED_BUF (1U << 2)
#define IORING_SEND_ZC_REPORT_USAGE (1U << 3)
#define IORING_NOTIF_USAGE_ZC_COPIED (1U << 31)
#define SPLICE_F_FD_IN_FIXED (1U << 31)
/* Bits of io_rsrc_node.file_ptr that are flags (FFS_MASK, io_uring/filetable.h). */
#define FILE_POINTER_FLAGS 3UL

/* True if BTF has these members, which some kernels with the tracepoint lack. Such kernels lack SEND_ZC, too. */
struct io_cqe___found {
	int res;
	unsigned int flags;
} __attribute__((preserve_access_index));

struct io_kiocb___found {
	struct file *file;
	__u8 opcode;
	struct io_cqe___found cqe;
	struct io_wq_work work;
} __attribute__((preserve_access_index));

struct io_rsrc_node___found {
	unsigned long file_ptr;
} __attribute__((preserve_access_index));

/* Parameters of a splice request (io_uring/splice.c), stored where the request stores its file. */
struct io_splice___found {
	int splice_fd_in;
	unsigned int flags;
	struct io_rsrc_node___found *rsrc_node;
} __attribute__((preserve_access_index));

struct io_worker___found {
	struct io_wq_work *cur_work;
} __attribute__((preserve_access_index));

struct task_struct___found {
	void *worker_private;
} __attribute__((preserve_access_index));

/* Return the request that the running io_uring worker is handling; NULL for any other task. */
static __always_inline const struct io_kiocb___found *request_of_worker(void)
{
	const struct task_struct___found *task = (const void *)bpf_get_current_task();
	const struct io_kiocb___found *request = NULL;
	const struct io_worker___found *worker = NULL;
	const struct io_wq_work *work;

	if (!bpf_core_field_exists(task->worker_private) || !bpf_core_field_exists(worker->cur_work))
		return NULL;
	worker = BPF_CORE_READ(task, worker_private);
	work = worker ? BPF_CORE_READ(worker, cur_work) : NULL;
	return work ? (const void *)work - bpf_core_field_offset(request->work) : NULL;
}

/* Return the file from which a splice request takes bytes, or NULL: before 6.13, registered files are not found. */
static __always_inline struct file *spliced_file(const struct io_kiocb___found *request)
{
	const struct io_splice___found *splice = (const void *)__builtin_preserve_access_index(&request->file);

	if (BPF_CORE_READ(request, opcode) != IORING_OP_SPLICE)
		return NULL;
	if (!(BPF_CORE_READ(splice, flags) & SPLICE_F_FD_IN_FIXED))
		return file_of_fd(BPF_CORE_READ(splice, splice_fd_in));
	if (!bpf_core_field_exists(splice->rsrc_node))
		return NULL;
	return (struct file *)(BPF_CORE_READ(splice, rsrc_node, file_ptr) & ~FILE_POINTER_FLAGS);
}

static __always_inline bool is_zerocopy_send(__u8 opcode)
{
	return opcode == IORING_OP_SEND_ZC || opcode == IORING_OP_SENDMSG_ZC;
}

static __always_inline bool is_read(__u8 opcode)
{
	return opcode == IORING_OP_READV || opcode == IORING_OP_READ_FIXED || opcode == IORING_OP_READ ||
	       opcode == IORING_OP_READ_MULTISHOT || opcode == IORING_OP_READV_FIXED;
}

#endif

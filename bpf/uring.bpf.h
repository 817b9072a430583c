/* SPDX-License-Identifier: GPL-2.0 */
/* uring.bpf.h - what a request of io_uring was, read when it ends. */
#ifndef COPYSCOPE_URING_BPF_H
#define COPYSCOPE_URING_BPF_H

#include "target.bpf.h"

/* include/uapi/linux/io_uring.h */
#define IORING_OP_READV 1
#define IORING_OP_READ_FIXED 4
#define IORING_OP_SENDMSG 9
#define IORING_OP_READ 22
#define IORING_OP_SEND 26
#define IORING_OP_SEND_ZC 47
#define IORING_OP_SENDMSG_ZC 48
#define IORING_OP_READ_MULTISHOT 49
#define IORING_OP_READV_FIXED 60
#define IORING_CQE_F_MORE (1U << 1)
#define IORING_CQE_F_NOTIF (1U << 3)
#define IORING_RECVSEND_FIXED_BUF (1U << 2)
#define IORING_SEND_ZC_REPORT_USAGE (1U << 3)
#define IORING_NOTIF_USAGE_ZC_COPIED (1U << 31)

/* Read from BTF: none of it is in every kernel that has the tracepoint; where it is not, there is no SEND_ZC either. */
struct io_cqe___found {
	int res;
	unsigned int flags;
} __attribute__((preserve_access_index));

struct io_kiocb___found {
	struct file *file;
	__u8 opcode;
	struct io_cqe___found cqe;
} __attribute__((preserve_access_index));

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

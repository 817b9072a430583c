// SPDX-License-Identifier: GPL-2.0-only
/*
 * file_reads.bpf.c - counts file reads that a watched program makes with system calls. uring.bpf.c counts file reads
 * through io_uring.
 */
#include "file_reads.bpf.h"

/* include/uapi/linux/aio_abi.h */
#define IOCB_CMD_PREAD 0
#define IOCB_CMD_PREADV 7

struct aio_request {
	__u64 data;
	__u32 key;
	__u32 flags;
	__u16 opcode;
	__s16 priority;
	__u32 fd;
};

/* Maximum number of requests inspected per io_submit(2). */
#define REQUESTS 16

__u64 file_read_calls[FILE_READS_SLOTS];
__u64 file_read_bytes[FILE_READS_SLOTS];
/* Number of io_submit(2), which is not in call_of_nr because it is not a call on sockets. */
const volatile __u32 io_submit_number;

/*
 * Count submitted reads. Their results go to a ring in the program's memory, and no tracepoint reports them
 * (aio_complete(), fs/aio.c).
 */
static __always_inline void note_submitted(const struct system_call *syscall, int submitted)
{
	const struct aio_request **requests = (const struct aio_request **)THIRD_ARGUMENT(syscall);

	for (int i = 0; i < REQUESTS && i < submitted; i++) {
		const struct aio_request *request = NULL;
		struct aio_request iocb;

		if (bpf_probe_read_user(&request, sizeof(request), requests + i) ||
		    bpf_probe_read_user(&iocb, sizeof(iocb), request)) {
			count_loss(LOSS_WATCHED_UNREADABLE);
			return;
		}
		if ((iocb.opcode == IOCB_CMD_PREAD || iocb.opcode == IOCB_CMD_PREADV) &&
		    file_read_kind(file_of_fd(iocb.fd)) == FILE_READS_CACHED)
			count_unsized_read(FILE_CALL_AIO);
	}
}

/* Count the reads of a system call. Reads of mapped files cause no system call and are not seen. */
SEC("?tp_btf")
int BPF_PROG(on_file_read, struct pt_regs *regs, int ret)
{
	struct system_call syscall;
	__u32 call;

	call = read_system_call(&syscall, regs);
	if (ret <= 0 || watch_mode == WATCH_NOBODY || current_side() == SIDE_OTHER)
		return 0;
	if (call == CALL_READ)
		count_file_read(file_of_fd(FIRST_ARGUMENT(&syscall)), FILE_CALL_READ, ret);
	else if (call == CALL_READV)
		count_file_read(file_of_fd(FIRST_ARGUMENT(&syscall)), FILE_CALL_READV, ret);
	else if (call == CALL_IO_URING)
		count_unsized_read(FILE_CALL_URING);
	else if ((__u32)regs->REG_SYSCALL == io_submit_number)
		note_submitted(&syscall, ret);
	return 0;
}

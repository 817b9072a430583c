// SPDX-License-Identifier: GPL-2.0
/* file_reads.bpf.c - what a watched program reads by system calls; what io_uring reads for it is counted in uring.bpf.c. */
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

/* Of one io_submit(2) so many requests are looked at. */
#define REQUESTS 16

__u64 file_read_calls[FILE_READS_SLOTS];
__u64 file_read_bytes[FILE_READS_SLOTS];
/* The number of io_submit(2), which is no call on sockets. */
const volatile __u32 io_submit_number;

/* Results go to a ring in the program's memory, and no tracepoint tells of them (aio_complete(), fs/aio.c). */
static __always_inline void note_submitted(const struct system_call *made, int submitted)
{
	const struct aio_request **requests = (const struct aio_request **)THIRD_ARGUMENT(made);

	for (int i = 0; i < REQUESTS && i < submitted; i++) {
		const struct aio_request *request = NULL;
		struct aio_request asked;

		if (bpf_probe_read_user(&request, sizeof(request), requests + i) ||
		    bpf_probe_read_user(&asked, sizeof(asked), request)) {
			count_loss(LOSS_WATCHED_UNREADABLE);
			return;
		}
		if ((asked.opcode == IOCB_CMD_PREAD || asked.opcode == IOCB_CMD_PREADV) &&
		    read_of_file(file_of_fd(asked.fd)) == FILE_READS_CACHED)
			note_unseen_read(FILE_CALL_AIO);
	}
}

/* What is mapped is not seen here. */
SEC("?tp_btf")
int BPF_PROG(on_file_read, struct pt_regs *regs, int ret)
{
	struct system_call made;
	__u32 call;

	call = read_system_call(&made, regs);
	if (ret <= 0 || watch_mode == WATCH_NOBODY || current_side() == SIDE_OTHER)
		return 0;
	if (call == CALL_READ)
		count_file_read(file_of_fd(FIRST_ARGUMENT(&made)), FILE_CALL_READ, ret);
	else if (call == CALL_READV)
		count_file_read(file_of_fd(FIRST_ARGUMENT(&made)), FILE_CALL_READV, ret);
	else if (call == CALL_IO_URING)
		note_unseen_read(FILE_CALL_URING);
	else if ((__u32)regs->REG_SYSCALL == io_submit_number)
		note_submitted(&made, ret);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/* uring.bpf.c - watched programs: data that io_uring sends without a copy, and data that it reads from files. */
#include "file_reads.bpf.h"
#include "io_request.bpf.h"
#include "waits.bpf.h"

/* Defined in volume.bpf.c and shape.bpf.c. */
extern int count_spliced_by_ring(__u64 socket, __u64 bytes);
extern int count_zerocopy_header(__u32 index, __u64 header);

struct io_notif_data___found {
	bool zc_report;
} __attribute__((preserve_access_index));

static __always_inline void note_notification(const struct io_kiocb___found *request)
{
	/* A notification stores its data where a request stores its file (io_notif_to_data(), io_uring/notif.h). */
	const struct io_notif_data___found *data = (const void *)__builtin_preserve_access_index(&request->file);

	if (!bpf_core_field_exists(data->zc_report) || !BPF_CORE_READ(data, zc_report)) {
		add_total(WATCH_UNTOLD, 1);
		return;
	}
	add_total(WATCH_NOTIFICATIONS, 1);
	add_total(WATCH_COMPLETIONS, 1);
	if (BPF_CORE_READ(request, cqe.res) & IORING_NOTIF_USAGE_ZC_COPIED)
		add_total(WATCH_COPIED, 1);
}

/* Parameters of a send request (io_uring/net.c), stored where the request stores its file, too. */
struct io_sr_msg___found {
	void *umsg;
	__u16 flags;
} __attribute__((preserve_access_index));

/*
 * A request that sent nothing still causes a notification that says "copied", although no send completed. The request
 * and its notification end in either order, so this subtracts what the notification adds.
 */
static __always_inline void discount_notification(const struct io_kiocb___found *request)
{
	const struct io_sr_msg___found *send_request = (const void *)__builtin_preserve_access_index(&request->file);

	if (!(BPF_CORE_READ(request, cqe.flags) & IORING_CQE_F_MORE))
		return;
	if (!bpf_core_field_exists(send_request->flags) || !(BPF_CORE_READ(send_request, flags) & IORING_SEND_ZC_REPORT_USAGE)) {
		add_total(WATCH_UNTOLD, -1);
		return;
	}
	add_total(WATCH_NOTIFICATIONS, -1);
	add_total(WATCH_COMPLETIONS, -1);
	add_total(WATCH_COPIED, -1);
}

static __always_inline void note_memory(const struct io_kiocb___found *request)
{
	const struct io_sr_msg___found *send_request = (const void *)__builtin_preserve_access_index(&request->file);

	if (bpf_core_field_exists(send_request->flags) && !(BPF_CORE_READ(send_request, flags) & IORING_RECVSEND_FIXED_BUF))
		add_total(WATCH_UNREGISTERED, 1);
}

/* The struct msghdr of a SENDMSG_ZC request is still where the program passed it, unless the program has reused it. */
static __always_inline void note_header(const struct io_kiocb___found *request, __u32 protocol)
{
	const struct io_sr_msg___found *send_request = (const void *)__builtin_preserve_access_index(&request->file);

	if (BPF_CORE_READ(request, opcode) == IORING_OP_SENDMSG_ZC && bpf_core_field_exists(send_request->umsg))
		count_zerocopy_header(protocol * CALL_CNT + CALL_IO_URING, (__u64)BPF_CORE_READ(send_request, umsg));
}

/*
 * The sending thread posts notifications to the ring, inside io_uring_enter() if it sleeps there for them. That sleep
 * may also wait for the end of any other request.
 */
static __always_inline void note_notified(void)
{
	struct system_call syscall;
	__u64 now;

	if (!waiting_used || !KNOWS_REGISTERS || read_system_call(&syscall, (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf())) != CALL_IO_URING)
		return;
	now = bpf_ktime_get_ns();
	note_waited(now, now);
}

static __always_inline void note_sent_by_ring(__u32 protocol)
{
	struct buffer_cell *cell = buffer_cell_of(protocol);

	if (cell)
		note_sent_on(cell, bpf_ktime_get_ns());
}

static __always_inline void count_spliced_in(const struct io_kiocb___found *request, __u64 bytes)
{
	const struct file *file = spliced_file(request);
	const struct sock *sk = file ? socket_of_file(file) : NULL;

	if (sk)
		count_spliced_by_ring((__u64)sk, bytes);
}

/*
 * A request has completed. Read its result from the request, because the arguments of the tracepoint differ between
 * kernels. The socket has already counted the bytes (volume.bpf.c) without knowing how they were sent. Completions of
 * multishot requests come without a request, and are no sends.
 */
SEC("?tp_btf")
int BPF_PROG(on_uring_complete, void *ring, void *ended)
{
	const struct io_kiocb___found *request = ended;
	struct volume_cell *cell;
	const struct sock *sk;
	__u32 protocol;
	__u8 opcode;
	int sent;

	if (!bpf_core_field_exists(request->cqe) || !request || current_side() == SIDE_OTHER)
		return 0;
	if (BPF_CORE_READ(request, cqe.flags) & IORING_CQE_F_NOTIF) {
		note_notification(request);
		note_notified();
		return 0;
	}
	opcode = BPF_CORE_READ(request, opcode);
	sent = BPF_CORE_READ(request, cqe.res);
	if (opcode == IORING_OP_SPLICE && sent > 0)
		count_spliced_in(request, sent);
	if (opcode == IORING_OP_TEE && sent > 0)
		count_teed(sent);
	if (is_read(opcode) && sent > 0)
		count_file_read(BPF_CORE_READ(request, file), FILE_CALL_URING, sent);
	if (!is_zerocopy_send(opcode)) {
		note_reason_to_rest();
		return 0;
	}
	if (sent <= 0) {
		discount_notification(request);
		return 0;
	}
	sk = socket_of_file(BPF_CORE_READ(request, file));
	protocol = sk ? protocol_of(sk) : PROTOCOL_CNT;
	if (protocol == PROTOCOL_CNT)
		return 0;
	cell = volume_of(protocol, DIRECTION_SEND, CALL_IO_URING);
	if (!cell)
		return 0;
	cell->zerocopy_calls++;
	cell->zerocopy_bytes += sent;
	count_zerocopy_by_program(protocol, CALL_IO_URING, sent);
	note_memory(request);
	note_header(request, protocol);
	note_sent_by_ring(protocol);
	return 0;
}

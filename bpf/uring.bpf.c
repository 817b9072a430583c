// SPDX-License-Identifier: GPL-2.0
/* uring.bpf.c - a program that we did not write: what its io_uring sends without a copy, and reads out of files. */
#include "file_reads.bpf.h"
#include "uring.bpf.h"
#include "waits.bpf.h"

struct io_notif_data___found {
	bool zc_report;
} __attribute__((preserve_access_index));

static __always_inline void note_notification(const struct io_kiocb___found *request)
{
	/* A notification keeps its data where a request has its file (io_notif_to_data(), io_uring/notif.h). */
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

/* What a request asks for that sends (io_uring/net.c); it is kept where the request has its file, too. */
struct io_sr_msg___found {
	__u16 flags;
} __attribute__((preserve_access_index));

/*
 * A request that sent nothing is notified of as well, and as copied: that is no completion of a send. Its two ends come in either
 * order, so what its notification adds is taken off here.
 */
static __always_inline void discount_notification(const struct io_kiocb___found *request)
{
	const struct io_sr_msg___found *asked = (const void *)__builtin_preserve_access_index(&request->file);

	if (!(BPF_CORE_READ(request, cqe.flags) & IORING_CQE_F_MORE))
		return;
	if (!bpf_core_field_exists(asked->flags) || !(BPF_CORE_READ(asked, flags) & IORING_SEND_ZC_REPORT_USAGE)) {
		add_total(WATCH_UNTOLD, -1);
		return;
	}
	add_total(WATCH_NOTIFICATIONS, -1);
	add_total(WATCH_COMPLETIONS, -1);
	add_total(WATCH_COPIED, -1);
}

static __always_inline void note_memory(const struct io_kiocb___found *request)
{
	const struct io_sr_msg___found *asked = (const void *)__builtin_preserve_access_index(&request->file);

	if (bpf_core_field_exists(asked->flags) && !(BPF_CORE_READ(asked, flags) & IORING_RECVSEND_FIXED_BUF))
		add_total(WATCH_UNREGISTERED, 1);
}

/*
 * Notifications are put into the ring by the thread that sent, in io_uring_enter() if it sleeps there for them. The end of any other
 * request may be what it sleeps for.
 */
static __always_inline void note_notified(void)
{
	struct system_call made;
	__u64 now;

	if (!waiting_used || !KNOWS_REGISTERS || current_call(&made) != CALL_IO_URING)
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

/*
 * A request has ended; its result is in the request, where every kernel has it: the arguments of the tracepoint changed. The
 * bytes have been counted at the socket (volume.bpf.c), which does not know how they were sent. Completions that belong to no
 * request (multishot) have none, and are no sends.
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
	note_memory(request);
	note_sent_by_ring(protocol);
	return 0;
}

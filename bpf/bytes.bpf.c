// SPDX-License-Identifier: GPL-2.0-only
/*
 * bytes.bpf.c - exact number of bytes that pass the socket layer and the receive copy.
 *
 * Each hook needs only a compare and four additions, but of all counting hooks these cost the most. The hooks run in
 * segments of their own if the traffic reports its bytes itself. Otherwise the hooks run in the segments of the
 * sampler, and the ledger's statement of overhead includes them.
 */
#include "map.bpf.h"
#include "socket.bpf.h"
#include "io_request.bpf.h"

/* Set if our own traffic passes the socket more than once per call, or sends pages of a pipe. */
const volatile bool sends_in_pieces;

/*
 * Maximum number of messages that our own traffic sends per call (src/traffic/options.c), and the layout of the
 * 64-bit struct mmsghdr.
 */
#define BATCH_MAX 64
#define MMSGHDR_BYTES 64
#define MSG_LEN_AT 56

MAP(PERCPU_ARRAY, byte_cells, __u32, struct byte_cell, BYTES_CNT * SIDE_TARGETS);

/* How a send passes its bytes to the kernel. */
enum method { BY_COPY, BY_ZEROCOPY, BY_SPLICE };

static __always_inline void count_bytes(enum byte_hook hook, __u32 side, __s64 bytes, enum method method)
{
	__u32 index = hook * SIDE_TARGETS + side;
	struct byte_cell *cell = bpf_map_lookup_elem(&byte_cells, &index);

	if (!cell)
		return;
	cell->calls++;
	cell->bytes += bytes;
	if (method == BY_ZEROCOPY) {
		cell->zerocopy_calls++;
		cell->zerocopy_bytes += bytes;
	} else if (method == BY_SPLICE) {
		cell->spliced_calls++;
		cell->spliced_bytes += bytes;
	}
}

struct socket_call {
	long nr;
	__u64 flags;
};

/* Read the number and the flags of the syscall from the registers, which still hold them at sys_exit. */
static __always_inline struct socket_call socket_call(struct pt_regs *regs)
{
	struct socket_call call = { .nr = regs->REG_SYSCALL };

	call.flags = call.nr == NR_SENDTO || call.nr == NR_RECVFROM ? regs->REG_FOURTH : regs->REG_THIRD;
	return call;
}

static __always_inline int takes_zerocopy(const struct sock *sk)
{
	return sk->__sk_common.skc_flags >> bpf_core_enum_value(enum sock_flags, SOCK_ZEROCOPY) & 1;
}

/*
 * The tracepoint's own flags argument is always 0 for sends (__sock_sendmsg(), net/socket.c), so the kind of send is
 * read from the syscall. Without SO_ZEROCOPY the kernel ignores MSG_ZEROCOPY and copies. From 6.5 on, sendfile(2) and
 * splice(2) pass here once per pipe full of pages (splice_to_socket()).
 */
SEC("?tp_btf")
int BPF_PROG(on_send_bytes, struct sock *sk, int ret, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 side = current_side();
	struct socket_call call;
	enum method method = BY_COPY;

	if (side == SIDE_OTHER || ret < 0)
		return 0;
	/*
	 * This send is certainly a copy. The test avoids reading the registers, which is a third of the cost.
	 * sendfile(2) gives the task a pipe, which the task keeps (splice_direct_to_actor(), fs/splice.c).
	 */
	if (!sends_in_pieces && !task->splice_pipe && !takes_zerocopy(sk)) {
		count_bytes(BYTES_SEND, side, ret, BY_COPY);
		return 0;
	}
	call = socket_call((struct pt_regs *)bpf_task_pt_regs(task));
	if (call.nr == NR_SENDFILE || call.nr == NR_SPLICE)
		method = BY_SPLICE;
	else if (call.flags & MSG_ZEROCOPY && takes_zerocopy(sk))
		method = BY_ZEROCOPY;
	count_bytes(BYTES_SEND, side, ret, method);
	return 0;
}

/* sendmmsg(2) returns the number of messages sent, and stores the length of each in its header. */
static __always_inline void count_several(struct pt_regs *regs, __u32 side, long sent)
{
	const char *headers = (const char *)regs->REG_SECOND;
	__u32 length;

	for (int i = 0; i < BATCH_MAX && i < sent; i++)
		if (!bpf_probe_read_user(&length, sizeof(length), headers + i * MMSGHDR_BYTES + MSG_LEN_AT))
			count_bytes(BYTES_SEND, side, length, BY_COPY);
}

/* Kernels before 6.3 have no sock_send_length: use the return value of the syscall. */
SEC("?tp_btf")
int BPF_PROG(on_send_bytes_at_exit, struct pt_regs *regs, long ret)
{
	__u32 side = current_side();
	struct socket_call call;

	if (side == SIDE_OTHER || ret < 0)
		return 0;
	call = socket_call(regs);
	if (call.nr == NR_SENDFILE || (call.nr == NR_SPLICE && socket_of_fd(regs->REG_THIRD)))
		count_bytes(BYTES_SEND, side, ret, BY_SPLICE);
	else if (call.nr == NR_SENDMMSG)
		count_several(regs, side, ret);
	else if (call.nr == NR_WRITEV)
		count_bytes(BYTES_SEND, side, ret, BY_COPY);
	else if (call.nr == NR_SENDTO || call.nr == NR_SENDMSG)
		count_bytes(BYTES_SEND, side, ret, call.flags & MSG_ZEROCOPY ? BY_ZEROCOPY : BY_COPY);
	return 0;
}

SEC("?tp_btf")
int BPF_PROG(on_receive_bytes, struct sock *sk, int ret, int flags)
{
	__u32 side = current_side();

	/* Calls with MSG_ERRQUEUE read completions, not payload. */
	if (side == SIDE_OTHER || ret < 0 || (flags & MSG_ERRQUEUE))
		return 0;
	count_bytes(BYTES_RECEIVE, side, ret, BY_COPY);
	return 0;
}

SEC("?tp_btf")
int BPF_PROG(on_receive_bytes_at_exit, struct pt_regs *regs, long ret)
{
	__u32 side = current_side();
	struct socket_call call;

	if (side == SIDE_OTHER || ret < 0)
		return 0;
	call = socket_call(regs);
	if ((call.nr == NR_RECVFROM || call.nr == NR_RECVMSG) && !(call.flags & MSG_ERRQUEUE))
		count_bytes(BYTES_RECEIVE, side, ret, BY_COPY);
	return 0;
}

SEC("?tp_btf")
int BPF_PROG(on_copy_out_bytes, const struct sk_buff *skb, int len)
{
	__u32 side = current_side();

	if (side == SIDE_OTHER)
		return 0;
	count_bytes(BYTES_COPY_OUT, side, len, BY_COPY);
	return 0;
}

/*
 * An io_uring send request has completed. The socket may have taken it in parts, and on_send_bytes() counted each
 * part as a copy; only the request tells whether it was one. Notifications are not requests, and refused requests
 * moved nothing.
 */
SEC("?tp_btf")
int BPF_PROG(on_uring_bytes, void *ring, void *ended)
{
	const struct io_kiocb___found *request = ended;
	__u32 side = current_side();
	__u8 opcode;
	int sent;

	if (!bpf_core_field_exists(request->cqe) || !request || side == SIDE_OTHER)
		return 0;
	opcode = BPF_CORE_READ(request, opcode);
	sent = BPF_CORE_READ(request, cqe.res);
	if (sent <= 0 || BPF_CORE_READ(request, cqe.flags) & IORING_CQE_F_NOTIF)
		return 0;
	if (is_zerocopy_send(opcode))
		count_bytes(BYTES_URING, side, sent, BY_ZEROCOPY);
	else if (opcode == IORING_OP_SEND || opcode == IORING_OP_SENDMSG)
		count_bytes(BYTES_URING, side, sent, BY_COPY);
	return 0;
}

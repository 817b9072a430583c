// SPDX-License-Identifier: GPL-2.0-only
/* volume.bpf.c - watched programs: bytes that move through their sockets, per call. */
#include "by_reference.bpf.h"
#include "completion.bpf.h"
#include "pipe.bpf.h"
#include "watched_sockets.bpf.h"

#define EAGAIN 11
#define ENOBUFS 105
/* Values of TCP's field `nonagle` (include/net/tcp.h). */
#define TCP_NAGLE_OFF 1
#define TCP_NAGLE_CORK 2
#define SHUTDOWN_MASK 3

struct zerocopy_map zerocopy_sockets SEC(".maps");
struct buffer_map zerocopy_buffers SEC(".maps");
struct buffer_cell_map buffer_cells SEC(".maps");
__u64 zerocopy_flight[FLIGHT_SLOTS];
struct waiting_map waiting_tasks SEC(".maps");
__u8 waiting_used;

struct volume_map volume_cells SEC(".maps");

/* Declared in watched_sockets.bpf.h. */
const volatile __u32 stores_at_sockets;
__u8 volume_used[VOLUME_SLOTS];
__u64 teed_calls;
__u64 teed_bytes;
/* Declared in pipe.bpf.h. */
__u64 memory_page_steal;
__u64 written_page_steal;
__u64 packet_page_release;
/* Declared in socket.bpf.h. */
__u64 sockmap_close;

/* Send calls that failed, by call and errno. */
__u64 send_errors[CALL_SLOTS * ERRNO_SLOTS];

static __always_inline __u64 send_flags(const struct system_call *syscall)
{
	switch (syscall->call) {
	case CALL_SENDTO:
	case CALL_SENDMMSG:
		return FOURTH_ARGUMENT(syscall);
	case CALL_SENDMSG:
		return THIRD_ARGUMENT(syscall);
	default:
		/* write(2) and the other calls have no flags. */
		return 0;
	}
}

/*
 * Count a failed send call as the program sees it. Only calls with one message per call count; other calls pass
 * several messages to the socket, or retry by themselves. A call that a signal interrupted and that may restart
 * returns an internal error of the kernel (ERESTARTSYS).
 */
static __always_inline void count_refused(const struct system_call *syscall, __u32 protocol, long ret)
{
	struct buffer_cell *buffers;
	__u32 call = syscall->call;
	__u64 error = -ret;

	if (sends_message(call) && error < ERRNO_SLOTS)
		add_atomic(&send_errors[BOUNDED(call * ERRNO_SLOTS + error, CALL_SLOTS * ERRNO_SLOTS)], 1);
	if ((error != ENOBUFS && error != EAGAIN) || !(send_flags(syscall) & MSG_ZEROCOPY))
		return;
	buffers = buffer_cell_of(protocol);
	if (!buffers)
		return;
	if (error == ENOBUFS) {
		buffers->enobufs++;
	} else {
		buffers->eagain++;
		note_reason_to_rest();
	}
}

/*
 * The verifier knows a socket that comes from a tracepoint (`given`), so its fields can be loaded directly instead of
 * by a helper.
 */
static __always_inline __u32 nagle_of(const struct sock *sk, bool given)
{
	const struct tcp_sock *tcp = given ? bpf_skc_to_tcp_sock((void *)sk) : (const struct tcp_sock *)sk;

	if (!given)
		return BPF_CORE_READ_BITFIELD_PROBED(tcp, nonagle);
	return tcp ? BPF_CORE_READ_BITFIELD(tcp, nonagle) : 0;
}

static __always_inline bool has_zerocopy_option(const struct sock *sk, bool given)
{
	__u64 flags = given ? sk->__sk_common.skc_flags : BPF_CORE_READ(sk, __sk_common.skc_flags);

	return flags >> bpf_core_enum_value(enum sock_flags, SOCK_ZEROCOPY) & 1;
}

/* Follow the completions of a socket, from its first zero-copy send on. */
static __always_inline void follow_completions(const struct sock *sk, __u32 protocol, __u64 bytes)
{
	/* The number that the kernel gave to this send. */
	__u32 id = BPF_CORE_READ(sk, sk_zckey.counter) - 1;
	struct zerocopy_socket *zc_socket, fresh = { .next_id = id, .sent_id = id, .back_id = id, .read_id = id, .protocol = protocol,
						  .socket = (__u64)sk };
	__u64 key = (__u64)sk;

	zc_socket = bpf_map_lookup_elem(&zerocopy_sockets, &key);
	/*
	 * Every TCP peer is recorded. UDP peers are recorded only here, where the path decides whether a copy is
	 * saved.
	 */
	if (!zc_socket && protocol == PROTOCOL_UDP)
		note_peer(sk);
	if (zc_socket && (__s32)(id + 1 - zc_socket->next_id) >= 0) {
		note_returned(zc_socket, id, bytes);
		return;
	}
	if (zc_socket) {
		/* The numbers restarted: this is another socket, at the address of a socket with an unseen end. */
		note_socket_gone(zc_socket);
		*zc_socket = fresh;
	} else if (bpf_map_update_elem(&zerocopy_sockets, &key, &fresh, BPF_NOEXIST)) {
		count_loss(LOSS_WATCHED_ZEROCOPY_MAP_FULL);
		return;
	}
	zc_socket = bpf_map_lookup_elem(&zerocopy_sockets, &key);
	if (!zc_socket)
		return;
	note_returned(zc_socket, id, bytes);
	/* A send that was delivered on this machine may already be complete. */
	if (sees_completions())
		read_completion(sk, zc_socket);
}

static __always_inline void note_nagle(struct volume_cell *cell, const struct sock *sk, bool given, __u32 protocol)
{
	__u32 nagle = protocol == PROTOCOL_TCP ? nagle_of(sk, given) : 0;

	cell->nodelay_calls += !!(nagle & TCP_NAGLE_OFF);
	cell->cork_calls += !!(nagle & TCP_NAGLE_CORK);
}

static __always_inline void note_copied(struct volume_cell *cell, const struct sock *sk, const struct system_call *syscall,
					bool is_zerocopy, __u32 protocol, __u64 bytes)
{
	if (!copies_in_call(sk, protocol, syscall, is_zerocopy, bytes))
		return;
	cell->copied_calls++;
	cell->copied_bytes += bytes;
}

static __always_inline void note_send(struct volume_cell *cell, const struct sock *sk, bool given,
				      const struct system_call *syscall, __u32 protocol, __u64 bytes)
{
	bool is_zerocopy = false;

	note_nagle(cell, sk, given, protocol);
	if (!(send_flags(syscall) & MSG_ZEROCOPY) || !bytes) {
		note_send_without_flag(protocol);
	/* The kernel ignores the flag without SO_ZEROCOPY. */
	} else if (!has_zerocopy_option(sk, given)) {
		struct buffer_cell *buffers = buffer_cell_of(protocol);

		if (buffers)
			buffers->without_option++;
	} else {
		is_zerocopy = true;
		cell->zerocopy_calls++;
		cell->zerocopy_bytes += bytes;
		if (given)
			count_zerocopy_by_program(protocol, syscall->call, bytes);
		/* MPTCP reports no completions. */
		if (protocol != PROTOCOL_MPTCP)
			follow_completions(sk, protocol, bytes);
	}
	if (is_zerocopy || syscall->call == CALL_SENDFILE || syscall->call == CALL_SPLICE)
		note_copied(cell, sk, syscall, is_zerocopy, protocol, bytes);
}

static __always_inline void note_ring(struct volume_cell *cell, __u64 bytes)
{
	cell->ring_calls++;
	cell->ring_bytes += bytes;
}

/* Bytes of one pass, by the origin of their pages. */
struct spliced_bytes {
	__u64 of[PAGE_ORIGINS];
};

/*
 * Divide the bytes that a socket has just taken out of a pipe. While the socket takes them, the pipe is locked and still
 * contains them (splice_to_socket()). Global, so that the verifier checks it by itself.
 */
__noinline int divide_spliced(__u64 file, __u64 bytes, struct spliced_bytes *divided)
{
	const struct pipe_inode_info___found *pipe;
	const struct pipe_buf_operations *ops = NULL;
	const struct pipe_buffer *buffers;
	enum page_origin origin = PAGE_OF_FILE;
	struct pipe_buffer buffer;
	__u32 tail, mask;
	__u64 taken;

	if (!divided)
		return 0;
	if (file && (memory_page_steal || written_page_steal || packet_page_release)) {
		pipe = BPF_CORE_READ((const struct file *)file, private_data);
		buffers = BPF_CORE_READ(pipe, bufs);
		tail = BPF_CORE_READ(pipe, tail);
		mask = BPF_CORE_READ(pipe, ring_size) - 1;
		for (__u32 i = 0; i < SPLICED_BUFFERS_MAX && bytes; i++) {
			if (bpf_probe_read_kernel(&buffer, sizeof(buffer), buffers + ((tail + i) & mask)))
				break;
			if (buffer.ops != ops)
				origin = origin_of_pages((const void *)buffer.ops);
			ops = buffer.ops;
			taken = buffer.len < bytes ? buffer.len : bytes;
			bytes -= taken;
			divided->of[BOUNDED(origin, PAGE_ORIGINS)] += taken;
		}
	}
	divided->of[PAGE_OF_FILE] += bytes;
	return 0;
}

/* Count pages that splice(2) passed. A pass that takes pages of several origins counts once for each origin. */
static __always_inline void count_spliced(const struct sock *sk, const struct system_call *syscall, const struct file *pipe,
					  __u32 protocol, __u64 bytes)
{
	struct spliced_bytes divided = {};

	divide_spliced((__u64)pipe, bytes, &divided);
	if (divided.of[PAGE_OF_PACKET] && !splices_counted && splices_seen != SPLICES_SEEN) {
		splices_seen = SPLICES_SEEN_AS_SENT;
		count_loss(LOSS_SPLICE_UNCOUNTED);
	}
	for (__u32 origin = 0; origin < PAGE_ORIGINS; origin++) {
		__u64 part = divided.of[origin];
		__u32 call = call_of_origin(origin);
		struct volume_cell *cell = part || !bytes ? count_volume(protocol, DIRECTION_SEND, call, part) : NULL;

		if (!cell)
			continue;
		count_by_program(protocol, DIRECTION_SEND, call, part);
		if (syscall->call == CALL_IO_URING)
			note_ring(cell, part);
		note_nagle(cell, sk, true, protocol);
		note_copied(cell, sk, syscall, false, protocol, part);
		if (!bytes)
			break;
	}
}

SEC("?tp_btf")
int BPF_PROG(on_volume_sent, struct sock *sk, int ret, int flags)
{
	struct volume_cell *cell;
	struct system_call syscall;
	struct file *pipe = NULL;
	__u32 protocol, call;

	if (current_side() == SIDE_OTHER)
		return 0;
	protocol = protocol_of_given(sk);
	if (protocol == PROTOCOL_CNT)
		return 0;
	call = current_call(&syscall);
	if (ret < 0) {
		count_refused(&syscall, protocol, ret);
		return 0;
	}
	if (call == CALL_SPLICE || call == CALL_IO_URING)
		pipe = spliced_pipe(&syscall);
	if (pipe || call == CALL_SPLICE) {
		count_spliced(sk, &syscall, pipe, protocol, ret);
	} else {
		cell = count_volume(protocol, DIRECTION_SEND, call, ret);
		if (cell)
			note_send(cell, sk, true, &syscall, protocol, ret);
		count_by_program(protocol, DIRECTION_SEND, call, ret);
	}
	note_socket(sk, true, protocol, DIRECTION_SEND, ret);
	return 0;
}

static __always_inline struct volume_cell *count_received(__u32 protocol, enum direction direction, __u32 call, __u64 flags,
							  __u64 bytes)
{
	if (bytes && direction != DIRECTION_SEND)
		note_reason_to_rest();
	if (flags & MSG_TRUNC)
		count_volume(protocol, DIRECTION_TRUNCATED, call, bytes);
	/* TCP copies the urgent byte separately (tcp_recv_urg()). */
	else if (flags & MSG_OOB && protocol == PROTOCOL_TCP)
		count_volume(protocol, DIRECTION_COPY_OUT, call, bytes);
	return count_volume(protocol, direction, call, bytes);
}

SEC("?tp_btf")
int BPF_PROG(on_volume_received, struct sock *sk, int ret, int flags)
{
	enum direction direction = flags & MSG_PEEK ? DIRECTION_PEEK : DIRECTION_RECEIVE;
	struct system_call syscall;
	__u32 protocol, call;

	if (ret < 0 || current_side() == SIDE_OTHER)
		return 0;
	/* Calls with MSG_ERRQUEUE read completions, not payload. */
	if (flags & MSG_ERRQUEUE) {
		note_error_queue_read(sk);
		return 0;
	}
	protocol = protocol_of_given(sk);
	if (protocol != PROTOCOL_CNT) {
		call = current_call(&syscall);
		count_received(protocol, direction, call, flags, ret);
		count_by_program(protocol, direction, call, ret);
	}
	if (protocol != PROTOCOL_TCP || direction == DIRECTION_RECEIVE)
		note_socket(sk, true, protocol, direction, ret);
	return 0;
}

/* Count a call at its exit. Every system call of the machine comes here, so the cheapest tests come first. */
static __always_inline void count_at_exit(const struct system_call *syscall, int ret, bool spliced)
{
	struct volume_cell *cell;
	__u32 protocol, call = syscall->call;
	struct sock *sk;
	__u64 flags;

	if ((ret < 0 && (spliced || !sends_message(call))) || (spliced && call != CALL_SPLICE) || current_side() == SIDE_OTHER)
		return;
	/* These calls do not return bytes. */
	if (call == CALL_NONE || call == CALL_IO_URING || call == CALL_SENDMMSG || call == CALL_RECVMMSG || call == CALL_MAP ||
	    call == CALL_TEE)
		return;
	call = watched_call(syscall, &protocol);
	if (call == CALL_NONE || spliced != (call == CALL_SPLICE_READ))
		return;
	if (ret < 0) {
		count_refused(syscall, protocol, ret);
		return;
	}
	flags = receive_flags(syscall);
	if (takes_no_payload(syscall)) {
		if (!(flags & MSG_ERRQUEUE)) {
			count_received(protocol, DIRECTION_PEEK, call, flags, ret);
			return;
		}
		sk = socket_of_call(syscall, call);
		if (sk)
			note_error_queue_read(sk);
		return;
	}
	cell = count_received(protocol, direction_of(call), call, flags, ret);
	if (spliced)
		count_by_program(protocol, direction_of(call), call, ret);
	sk = socket_of_call(syscall, call);
	/* Another thread has closed the socket meanwhile. */
	if (!sk)
		return;
	note_socket(sk, false, protocol, direction_of(call), ret);
	if (cell && direction_of(call) == DIRECTION_SEND)
		note_send(cell, sk, false, syscall, protocol, ret);
}

/*
 * Forget a closed socket, whose address may be reused. This happens in the task that closes it: its program moves
 * nothing over it any more, while TCP may keep it for minutes. Later state changes happen in softirqs, where the
 * kernel may skip programs.
 */
static __always_inline void forget_socket(const struct sock *sk, int newstate)
{
	struct zerocopy_socket *zc_socket;
	__u64 key = (__u64)sk;

	if (newstate == TCP_CLOSE || sk->sk_shutdown == SHUTDOWN_MASK)
		forget_cell(sk);
	/* Completions may still arrive. */
	if (newstate != TCP_CLOSE)
		return;
	zc_socket = bpf_map_lookup_elem(&zerocopy_sockets, &key);
	if (zc_socket)
		note_socket_gone(zc_socket);
	bpf_map_delete_elem(&zerocopy_sockets, &key);
}

SEC("?tp_btf")
int BPF_PROG(on_socket_closed, const struct sock *sk, const int oldstate, const int newstate)
{
	forget_socket(sk, newstate);
	return 0;
}

/*
 * Handle sockets that on_socket_closed missed: a softirq that interrupts that program in a task finds it running, and
 * the kernel then skips it for all sockets that this softirq closes. Sockets are destroyed with softirqs disabled
 * (inet_csk_destroy_sock()), so nothing is skipped here.
 */
SEC("?tp_btf")
int BPF_PROG(on_socket_destroyed, const struct sock *sk)
{
	forget_socket(sk, TCP_CLOSE);
	return 0;
}

/* Kernels before 6.3 have no sock_send_length: use the return value of calls whose file is a socket. */
SEC("?tp_btf")
int BPF_PROG(on_volume_sent_at_exit, struct pt_regs *regs, int ret)
{
	struct system_call syscall;

	read_system_call(&syscall, regs);
	count_at_exit(&syscall, ret, false);
	return 0;
}

/* Offsets of the results in struct tcp_zerocopy_receive, which only grows (include/uapi/linux/tcp.h). */
#define MAPPED_BYTES_AT 8
#define COPIED_BYTES_AT 32

/*
 * TCP_ZEROCOPY_RECEIVE does not pass the receive calls of the socket layer, either. The kernel writes its results to
 * the program's struct: bytes that were mapped, and bytes that were copied to a buffer because they could not be
 * mapped (5.11 and newer, recognised by the length). If the call fails, nothing was received
 * (tcp_zerocopy_receive()).
 */
static __always_inline void count_mapped(const struct system_call *syscall, int ret)
{
	__u64 result_address = FOURTH_ARGUMENT(syscall);
	__u32 mapped = 0, length = 0;
	__s32 copied = 0;
	struct sock *sk;

	if (ret || !is_mapping(syscall) || current_side() == SIDE_OTHER)
		return;
	sk = socket_of_fd(FIRST_ARGUMENT(syscall));
	if (!sk || protocol_of(sk) != PROTOCOL_TCP)
		return;
	if (bpf_probe_read_user(&length, sizeof(length), (const void *)FIFTH_ARGUMENT(syscall)) ||
	    bpf_probe_read_user(&mapped, sizeof(mapped), (const void *)(result_address + MAPPED_BYTES_AT)) ||
	    (length >= COPIED_BYTES_AT + sizeof(copied) &&
	     bpf_probe_read_user(&copied, sizeof(copied), (const void *)(result_address + COPIED_BYTES_AT)))) {
		count_loss(LOSS_WATCHED_UNREADABLE);
		return;
	}
	if (mapped || copied > 0)
		note_reason_to_rest();
	count_volume(PROTOCOL_TCP, DIRECTION_MAPPED, CALL_MAP, mapped);
	if (copied > 0) {
		count_volume(PROTOCOL_TCP, DIRECTION_RECEIVE, CALL_MAP, copied);
		count_by_program(PROTOCOL_TCP, DIRECTION_RECEIVE, CALL_MAP, copied);
	}
	count_socket(sk, false, DIRECTION_RECEIVE, (__u64)mapped + (copied > 0 ? copied : 0));
}

/* splice(2) from a socket does not pass the receive calls of the socket layer (tcp_splice_read()). */
SEC("?tp_btf")
int BPF_PROG(on_volume_spliced, struct pt_regs *regs, int ret)
{
	struct system_call syscall;
	__u32 call = read_system_call(&syscall, regs);

	if (call == CALL_MAP)
		count_mapped(&syscall, ret);
	else if (call == CALL_TEE && ret > 0 && current_side() != SIDE_OTHER)
		count_teed(ret);
	else
		count_at_exit(&syscall, ret, true);
	return 0;
}

/*
 * Count bytes that a splice request of io_uring took out of a socket. uring.bpf.c calls this when the request has
 * completed; the socket is passed as an integer, because the verifier checks global functions by themselves.
 */
__noinline int count_spliced_by_ring(__u64 socket, __u64 bytes)
{
	const struct sock *sk = (const struct sock *)socket;
	__u32 protocol = protocol_of(sk);
	struct volume_cell *cell;

	if (protocol == PROTOCOL_CNT)
		return 0;
	cell = count_received(protocol, DIRECTION_RECEIVE, CALL_SPLICE_READ, 0, bytes);
	count_by_program(protocol, DIRECTION_RECEIVE, CALL_SPLICE_READ, bytes);
	if (cell)
		note_ring(cell, bytes);
	note_socket(sk, false, protocol, DIRECTION_RECEIVE, bytes);
	return 0;
}

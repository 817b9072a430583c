// SPDX-License-Identifier: GPL-2.0
/* volume.bpf.c - a program that we did not write: what moves through its sockets, call by call. */
#include "completion.bpf.h"
#include "pipe.bpf.h"
#include "watched_sockets.bpf.h"

#define EAGAIN 11
#define ENOBUFS 105
/* Of TCP's field nonagle (include/net/tcp.h). */
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

__u8 volume_used[VOLUME_SLOTS];
/* Declared in pipe.bpf.h. */
__u64 memory_page_steal;
__u64 written_page_steal;
__u64 packet_page_release;
/* Declared in socket.bpf.h. */
__u64 sockmap_close;

/* Send calls of which the socket took nothing. */
__u64 send_errors[CALL_SLOTS * ERRNO_SLOTS];

static __always_inline __u64 send_flags(const struct system_call *made)
{
	switch (made->call) {
	case CALL_SENDTO:
	case CALL_SENDMMSG:
		return FOURTH_ARGUMENT(made);
	case CALL_SENDMSG:
		return THIRD_ARGUMENT(made);
	default:
		/* write(2) has none. */
		return 0;
	}
}

/*
 * As the program saw it: other calls give more than one message to the socket, or try again by themselves. A call that a signal
 * ended, and that may begin anew, has an error of the kernel's own (ERESTARTSYS).
 */
static __always_inline void count_refused(const struct system_call *made, __u32 protocol, long ret)
{
	struct buffer_cell *buffers;
	__u32 call = made->call;
	__u64 error = -ret;

	if (sends_message(call) && error < ERRNO_SLOTS)
		add_atomic(&send_errors[BOUNDED(call * ERRNO_SLOTS + error, CALL_SLOTS * ERRNO_SLOTS)], 1);
	if ((error != ENOBUFS && error != EAGAIN) || !(send_flags(made) & MSG_ZEROCOPY))
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

static __always_inline struct volume_cell *count_volume(__u32 protocol, enum direction direction, __u32 call, __u64 bytes)
{
	struct volume_cell *cell = volume_of(protocol, direction, call);

	if (!cell)
		return NULL;
	if (!cell->calls)
		volume_used[BOUNDED(volume_index(protocol, direction, call), VOLUME_SLOTS)] = 1;
	cell->calls++;
	cell->bytes += bytes;
	cell->sizes[BOUNDED(size_slot(bytes), SIZE_SLOTS)]++;
	if (bytes > cell->largest_bytes)
		cell->largest_bytes = bytes;
	return cell;
}

/* A socket that a tracepoint has given is known to the verifier: loads do for what else takes a helper each. */
static __always_inline __u32 nagle_of(const struct sock *sk, bool given)
{
	const struct tcp_sock *tcp = given ? bpf_skc_to_tcp_sock((void *)sk) : (const struct tcp_sock *)sk;

	if (!given)
		return BPF_CORE_READ_BITFIELD_PROBED(tcp, nonagle);
	return tcp ? BPF_CORE_READ_BITFIELD(tcp, nonagle) : 0;
}

static __always_inline bool may_be_zerocopy(const struct sock *sk, bool given)
{
	__u64 flags = given ? sk->__sk_common.skc_flags : BPF_CORE_READ(sk, __sk_common.skc_flags);

	return flags >> bpf_core_enum_value(enum sock_flags, SOCK_ZEROCOPY) & 1;
}

/* From its first send with zero-copy on. */
static __always_inline void follow_completions(const struct sock *sk, __u32 protocol, __u64 bytes)
{
	/* The number that the kernel gave to this very send. */
	__u32 id = BPF_CORE_READ(sk, sk_zckey.counter) - 1;
	struct zerocopy_socket *known, fresh = { .next_id = id, .sent_id = id, .back_id = id, .read_id = id, .protocol = protocol,
						  .socket = (__u64)sk };
	__u64 key = (__u64)sk;

	known = bpf_map_lookup_elem(&zerocopy_sockets, &key);
	/* Of TCP every peer is noted; of UDP those where the path decides whether a copy is saved. */
	if (!known && protocol == PROTOCOL_UDP)
		note_peer(sk);
	if (known && (__s32)(id + 1 - known->next_id) >= 0) {
		note_returned(known, id, bytes);
		return;
	}
	if (known) {
		/* Numbers that begin anew are of another socket, at the place of one whose end was not seen. */
		note_gone(known);
		*known = fresh;
	} else if (bpf_map_update_elem(&zerocopy_sockets, &key, &fresh, BPF_NOEXIST)) {
		count_loss(LOSS_WATCHED_ZEROCOPY_MAP_FULL);
		return;
	}
	known = bpf_map_lookup_elem(&zerocopy_sockets, &key);
	if (!known)
		return;
	note_returned(known, id, bytes);
	/* Delivered on this machine, it may be complete already. */
	if (sees_completions())
		see_completion(sk, known);
}

static __always_inline void note_send(struct volume_cell *cell, const struct sock *sk, bool given,
				      const struct system_call *made, __u32 protocol, __u64 bytes)
{
	if (protocol == PROTOCOL_TCP) {
		__u32 nagle = nagle_of(sk, given);

		cell->nodelay_calls += !!(nagle & TCP_NAGLE_OFF);
		cell->cork_calls += !!(nagle & TCP_NAGLE_CORK);
	}
	if (!(send_flags(made) & MSG_ZEROCOPY) || !bytes) {
		note_sent_plainly(protocol);
		return;
	}
	/* The flag means nothing without SO_ZEROCOPY. */
	if (!may_be_zerocopy(sk, given)) {
		struct buffer_cell *buffers = buffer_cell_of(protocol);

		if (buffers)
			buffers->without_option++;
		return;
	}
	cell->zerocopy_calls++;
	cell->zerocopy_bytes += bytes;
	follow_completions(sk, protocol, bytes);
}

SEC("?tp_btf")
int BPF_PROG(on_volume_sent, struct sock *sk, int ret, int flags)
{
	struct volume_cell *cell;
	struct system_call made;
	__u32 protocol, call;

	if (current_side() == SIDE_OTHER)
		return 0;
	protocol = protocol_of_given(sk);
	if (protocol == PROTOCOL_CNT)
		return 0;
	call = current_call(&made);
	if (ret < 0) {
		count_refused(&made, protocol, ret);
		return 0;
	}
	if (call == CALL_SPLICE)
		call = splice_of_pipe(&made);
	cell = count_volume(protocol, DIRECTION_SEND, call, ret);
	if (cell)
		note_send(cell, sk, true, &made, protocol, ret);
	note_socket(sk, protocol, DIRECTION_SEND, ret);
	return 0;
}

static __always_inline struct volume_cell *count_received(__u32 protocol, enum direction direction, __u32 call, __u64 flags,
							  __u64 bytes)
{
	if (bytes && direction != DIRECTION_SEND)
		note_reason_to_rest();
	if (flags & MSG_TRUNC)
		count_volume(protocol, DIRECTION_TRUNCATED, call, bytes);
	/* The urgent byte is copied by itself (tcp_recv_urg()). */
	else if (flags & MSG_OOB && protocol == PROTOCOL_TCP)
		count_volume(protocol, DIRECTION_COPY_OUT, call, bytes);
	return count_volume(protocol, direction, call, bytes);
}

SEC("?tp_btf")
int BPF_PROG(on_volume_received, struct sock *sk, int ret, int flags)
{
	enum direction direction = flags & MSG_PEEK ? DIRECTION_PEEK : DIRECTION_RECEIVE;
	struct system_call made;
	__u32 protocol;

	if (ret < 0 || current_side() == SIDE_OTHER)
		return 0;
	/* Reading a completion is not receiving payload. */
	if (flags & MSG_ERRQUEUE) {
		see_reading(sk);
		return 0;
	}
	protocol = protocol_of_given(sk);
	if (protocol != PROTOCOL_CNT)
		count_received(protocol, direction, current_call(&made), flags, ret);
	if (protocol != PROTOCOL_TCP || direction == DIRECTION_RECEIVE)
		note_socket(sk, protocol, direction, ret);
	return 0;
}

/* Every system call of the machine comes here: the cheapest tests come first. */
static __always_inline void count_at_exit(const struct system_call *made, int ret, bool spliced)
{
	struct volume_cell *cell;
	__u32 protocol, call = made->call;
	struct sock *sk;
	__u64 flags;

	if ((ret < 0 && (spliced || !sends_message(call))) || (spliced && call != CALL_SPLICE) || current_side() == SIDE_OTHER)
		return;
	/* io_uring_enter() and the calls for several messages do not return bytes. */
	if (call == CALL_NONE || call == CALL_IO_URING || call == CALL_SENDMMSG || call == CALL_RECVMMSG || call == CALL_MAP)
		return;
	call = watched_call(made, &protocol);
	if (call == CALL_NONE || spliced != (call == CALL_SPLICE_READ))
		return;
	if (ret < 0) {
		count_refused(made, protocol, ret);
		return;
	}
	flags = receive_flags(made);
	if (is_looking(made)) {
		if (!(flags & MSG_ERRQUEUE)) {
			count_received(protocol, DIRECTION_PEEK, call, flags, ret);
			return;
		}
		sk = socket_of_call(made, call);
		if (sk)
			see_reading(sk);
		return;
	}
	cell = count_received(protocol, direction_of(call), call, flags, ret);
	sk = socket_of_call(made, call);
	/* Another thread has closed it meanwhile. */
	if (!sk)
		return;
	note_socket(sk, protocol, direction_of(call), ret);
	if (cell && direction_of(call) == DIRECTION_SEND)
		note_send(cell, sk, false, made, protocol, ret);
}

/*
 * A socket that is closed leaves its place to others: at once, in the task that closes it. Its program moves nothing over it any
 * more, while TCP may go on with it for minutes, and the rest of its states are told in softirqs, where programs are skipped.
 */
static __always_inline void forget_socket(const struct sock *sk, int newstate)
{
	struct zerocopy_socket *known;
	__u64 key = (__u64)sk;

	if (newstate == TCP_CLOSE || sk->sk_shutdown == SHUTDOWN_MASK)
		bpf_map_delete_elem(&socket_cells, &key);
	/* Completions may still come. */
	if (newstate != TCP_CLOSE)
		return;
	known = bpf_map_lookup_elem(&zerocopy_sockets, &key);
	if (known)
		note_gone(known);
	bpf_map_delete_elem(&zerocopy_sockets, &key);
}

SEC("?tp_btf")
int BPF_PROG(on_socket_closed, const struct sock *sk, const int oldstate, const int newstate)
{
	forget_socket(sk, newstate);
	return 0;
}

/*
 * What on_socket_closed missed: a softirq that interrupts it in a task finds it running, and the kernel skips it for all the
 * sockets that this softirq closes. Sockets are destroyed with softirqs off (inet_csk_destroy_sock()), so nothing is skipped here.
 */
SEC("?tp_btf")
int BPF_PROG(on_socket_destroyed, const struct sock *sk)
{
	forget_socket(sk, TCP_CLOSE);
	return 0;
}

/* Before 6.3 there is no sock_send_length: what the call returned, where its file is a socket. */
SEC("?tp_btf")
int BPF_PROG(on_volume_sent_at_exit, struct pt_regs *regs, int ret)
{
	struct system_call made;

	read_system_call(&made, regs);
	count_at_exit(&made, ret, false);
	return 0;
}

/* include/uapi/linux/tcp.h, struct tcp_zerocopy_receive, which only grows: what came of the call. */
#define MAPPED_BYTES_AT 8
#define COPIED_BYTES_AT 32

/*
 * TCP_ZEROCOPY_RECEIVE passes no receive call either. What it did stands in the struct that the program gave, just written: so
 * many bytes were mapped, and so many copied into the buffer for what could not be (5.11 and newer: the length tells). Where
 * the call fails, nothing was taken (tcp_zerocopy_receive()).
 */
static __always_inline void count_mapped(const struct system_call *made, int ret)
{
	__u64 told = FOURTH_ARGUMENT(made);
	__u32 mapped = 0, length = 0;
	__s32 copied = 0;
	struct sock *sk;

	if (ret || !is_mapping(made) || current_side() == SIDE_OTHER)
		return;
	sk = socket_of_fd(FIRST_ARGUMENT(made));
	if (!sk || protocol_of(sk) != PROTOCOL_TCP)
		return;
	if (bpf_probe_read_user(&length, sizeof(length), (const void *)FIFTH_ARGUMENT(made)) ||
	    bpf_probe_read_user(&mapped, sizeof(mapped), (const void *)(told + MAPPED_BYTES_AT)) ||
	    (length >= COPIED_BYTES_AT + sizeof(copied) &&
	     bpf_probe_read_user(&copied, sizeof(copied), (const void *)(told + COPIED_BYTES_AT)))) {
		count_loss(LOSS_WATCHED_UNREADABLE);
		return;
	}
	if (mapped || copied > 0)
		note_reason_to_rest();
	count_volume(PROTOCOL_TCP, DIRECTION_MAPPED, CALL_MAP, mapped);
	if (copied > 0)
		count_volume(PROTOCOL_TCP, DIRECTION_RECEIVE, CALL_MAP, copied);
	count_socket(sk, DIRECTION_RECEIVE, (__u64)mapped + (copied > 0 ? copied : 0));
}

/* splice(2) out of a socket passes no receive call of the socket layer (tcp_splice_read()). */
SEC("?tp_btf")
int BPF_PROG(on_volume_spliced, struct pt_regs *regs, int ret)
{
	struct system_call made;

	if (read_system_call(&made, regs) == CALL_MAP)
		count_mapped(&made, ret);
	else
		count_at_exit(&made, ret, true);
	return 0;
}

/* Where the headers of IP say what they carry. */
#define IP_PROTOCOL_AT 9
#define IPV6_NEXT_AT 6

static __always_inline bool is_datagram(const struct sk_buff *skb)
{
	__u32 at = skb->protocol == bpf_htons(ETH_P_IP) ? IP_PROTOCOL_AT : IPV6_NEXT_AT;
	__u8 inner = 0;

	return !bpf_probe_read_kernel(&inner, sizeof(inner), skb->head + skb->network_header + at) && inner == IPPROTO_UDP;
}

static __always_inline bool is_tap(const char *word)
{
	return word[0] == 't' && word[1] == 'a' && word[2] == 'p';
}

/*
 * What a tun or tap device gives to its program is copied by the same function (tun_put_user()), and belongs to nobody: its driver
 * lets the sender have it back first. In a receive queue of TCP a packet has no device, and in one of UDP what stands at that place
 * is no address (udp_set_dev_scratch()).
 */
static __always_inline bool is_from_tun(const struct sk_buff *skb)
{
	const struct net_device *device = skb->dev;
	const struct rtnl_link_ops *driver = device ? BPF_CORE_READ(device, rtnl_link_ops) : NULL;
	char kind[8] = {};

	if (!driver)
		return false;
	bpf_probe_read_kernel_str(kind, sizeof(kind), BPF_CORE_READ(driver, kind));
	/* tun; ipvtap; macvtap */
	return (kind[0] == 't' && kind[1] == 'u' && kind[2] == 'n') || is_tap(&kind[3]) || is_tap(&kind[4]);
}

/* The packet belongs to no socket, but the call that takes it has one. */
static __always_inline bool is_taken_in_watched_netns(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	const struct sock *sk = NULL;
	struct system_call made;

	if (!watch_netns)
		return true;
	if (KNOWS_REGISTERS && current_call(&made) != CALL_IO_URING)
		sk = socket_of_fd(FIRST_ARGUMENT(&made));
	/* Else a worker of io_uring, or an older kernel: sockets are mostly made where their program is. */
	return sk ? in_watched_netns(sk) : BPF_CORE_READ(task, nsproxy, net_ns, ns.inum) == watch_netns;
}

/* Packets of UDP in a receive queue, and what TLS has decrypted. */
static __always_inline __u32 protocol_without_socket(const struct sk_buff *skb)
{
	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return PROTOCOL_CNT;
	if (is_from_tun(skb) || !is_taken_in_watched_netns())
		return PROTOCOL_CNT;
	return is_datagram(skb) ? PROTOCOL_UDP : PROTOCOL_TCP;
}

/* Packets of all kinds of sockets are copied by the same function. */
SEC("?tp_btf")
int BPF_PROG(on_volume_copied_out, const struct sk_buff *skb, int len)
{
	const struct sock *sk = skb->sk;
	__u32 protocol;

	if (current_side() == SIDE_OTHER)
		return 0;
	if (!sk)
		protocol = protocol_without_socket(skb);
	/* In the local domain it belongs to who sent it (sock_alloc_send_pskb()): whether that is in a sockmap says nothing here. */
	else if (sk->__sk_common.skc_family == AF_UNIX)
		protocol = in_watched_netns(sk) ? unix_protocol(sk->sk_type) : PROTOCOL_CNT;
	else
		protocol = protocol_of_given(sk);
	if (protocol != PROTOCOL_CNT)
		count_volume(protocol, DIRECTION_COPY_OUT, CALL_OTHER, len);
	return 0;
}

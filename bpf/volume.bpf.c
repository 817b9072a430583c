// SPDX-License-Identifier: GPL-2.0
/* volume.bpf.c - a program that we did not write: what moves through its sockets, call by call. */
#include "flow.bpf.h"
#include "watch.bpf.h"

#define MSG_ZEROCOPY 0x4000000
/* Of TCP's field nonagle (include/net/tcp.h). */
#define TCP_NAGLE_OFF 1
#define TCP_NAGLE_CORK 2

struct zerocopy_map zerocopy_sockets SEC(".maps");

struct volume_map volume_cells SEC(".maps");

__u8 volume_used[VOLUME_CELLS];

/*
 * By the address of the socket, until it is closed. Room is taken as sockets come: before 5.11 the kernel charges these maps
 * to the memlock limit.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SOCKETS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct socket_cell);
} socket_cells SEC(".maps");

static __always_inline struct volume_cell *count_volume(__u32 protocol, enum direction direction, __u32 call, __u64 bytes)
{
	struct volume_cell *cell = volume_of(protocol, direction, call);

	if (!cell)
		return NULL;
	if (!cell->calls)
		volume_used[BOUNDED(volume_index(protocol, direction, call), VOLUME_CELLS)] = 1;
	cell->calls++;
	cell->bytes += bytes;
	cell->sizes[BOUNDED(size_slot(bytes), SIZE_SLOTS)]++;
	if (bytes > cell->largest_bytes)
		cell->largest_bytes = bytes;
	return cell;
}

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PEERS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct peer);
	__type(value, __u8);
} peers SEC(".maps");

/* With whom, and over which device: when anybody asks, a short program and its sockets are gone. The first PEERS_MAX. */
static __always_inline void note_peer(const struct sock *sk)
{
	const struct net_device *device = BPF_CORE_READ(sk, sk_dst_cache, dev);
	struct peer peer = {};
	__u8 there = 1;

	peer.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	peer.family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (peer.family == AF_INET6)
		BPF_CORE_READ_INTO(&peer.address, sk, __sk_common.skc_v6_daddr.in6_u.u6_addr8);
	else
		BPF_CORE_READ_INTO(&peer.address, sk, __sk_common.skc_daddr);
	if (device)
		BPF_CORE_READ_STR_INTO(&peer.device, device, name);
	bpf_map_update_elem(&peers, &peer, &there, BPF_NOEXIST);
}

static __always_inline void note_datagrams(const struct sock *sk)
{
	if (packets_wanted)
		remember_flow(sk, PROTOCOL_UDP);
}

static __always_inline __u64 inode_of(const struct sock *sk)
{
	return BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino);
}

static __always_inline void count_socket(const struct sock *sk, enum direction direction, __u64 bytes)
{
	struct socket_cell fresh = {}, *cell;
	__u64 key = (__u64)sk;

	cell = bpf_map_lookup_elem(&socket_cells, &key);
	if (!cell || packets_wanted)
		remember_flow(sk, PROTOCOL_TCP);
	if (!cell) {
		/* Nobody would take it away again. */
		if (BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_CLOSE)
			return;
		fresh.inode = inode_of(sk);
		note_peer(sk);
		bpf_map_update_elem(&socket_cells, &key, &fresh, BPF_NOEXIST);
		cell = bpf_map_lookup_elem(&socket_cells, &key);
		if (!cell) {
			count_loss(LOSS_WATCHED_SOCKET_MAP_FULL);
			return;
		}
	}
	add_atomic(direction == DIRECTION_SEND ? &cell->sent_bytes : &cell->received_bytes, bytes);
}

static __always_inline __u64 call_flags(struct pt_regs *regs, __u32 call)
{
	return call == CALL_SENDTO || call == CALL_SENDMMSG ? SYSCALL_FOURTH(regs) : SYSCALL_THIRD(regs);
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

static __always_inline void note_send(struct volume_cell *cell, const struct sock *sk, bool given, struct pt_regs *regs,
				      __u32 call, __u32 protocol, __u64 bytes)
{
	if (protocol == PROTOCOL_TCP) {
		__u32 nagle = nagle_of(sk, given);

		cell->nodelay_calls += !!(nagle & TCP_NAGLE_OFF);
		cell->cork_calls += !!(nagle & TCP_NAGLE_CORK);
	}
	/* The flag means nothing without SO_ZEROCOPY, and write(2) has no flags. */
	if (call != CALL_SENDTO && call != CALL_SENDMSG && call != CALL_SENDMMSG)
		return;
	if (!may_be_zerocopy(sk, given))
		return;
	if (call_flags(regs, call) & MSG_ZEROCOPY && bytes) {
		cell->zerocopy_calls++;
		cell->zerocopy_bytes += bytes;
		/* From here on its completions are followed. */
		if (protocol == PROTOCOL_TCP) {
			/* The number that the kernel gave to this very send. */
			struct zerocopy_socket fresh = {
				.next_id = BPF_CORE_READ(sk, sk_zckey.counter) - 1,
			};
			struct zerocopy_socket *known;
			__u64 key = (__u64)sk;

			known = bpf_map_lookup_elem(&zerocopy_sockets, &key);
			/* Numbers that begin anew are of another socket, at the place of one whose end was not seen. */
			if (known && (__s32)(fresh.next_id + 1 - known->next_id) < 0)
				*known = fresh;
			else if (!known && bpf_map_update_elem(&zerocopy_sockets, &key, &fresh, BPF_NOEXIST))
				count_loss(LOSS_WATCHED_ZEROCOPY_MAP_FULL);
		}
	}
}

SEC("?tp_btf")
int BPF_PROG(on_volume_sent, struct sock *sk, int ret, int flags)
{
	struct volume_cell *cell;
	struct task_struct *task;
	struct pt_regs *regs;
	__u32 protocol, call;

	if (ret < 0 || current_side() == SIDE_OTHER)
		return 0;
	protocol = protocol_of_given(sk);
	if (protocol == PROTOCOL_CNT)
		return 0;
	task = bpf_get_current_task_btf();
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	call = call_of_task(task, regs);
	cell = count_volume(protocol, DIRECTION_SEND, call, ret);
	if (cell)
		note_send(cell, sk, true, regs, call, protocol, ret);
	if (protocol == PROTOCOL_TCP)
		count_socket(sk, DIRECTION_SEND, ret);
	else
		note_datagrams(sk);
	return 0;
}

SEC("?tp_btf")
int BPF_PROG(on_volume_received, struct sock *sk, int ret, int flags)
{
	enum direction direction = flags & MSG_PEEK ? DIRECTION_PEEK : DIRECTION_RECEIVE;
	__u32 protocol;

	/* Reading a completion is not receiving payload. */
	if (ret < 0 || flags & MSG_ERRQUEUE || current_side() == SIDE_OTHER)
		return 0;
	protocol = protocol_of_given(sk);
	if (protocol != PROTOCOL_CNT)
		count_volume(protocol, direction, current_call(), ret);
	if (protocol == PROTOCOL_TCP && direction == DIRECTION_RECEIVE)
		count_socket(sk, DIRECTION_RECEIVE, ret);
	if (protocol == PROTOCOL_UDP)
		note_datagrams(sk);
	return 0;
}

static __always_inline void count_at_exit(struct pt_regs *regs, long ret, bool spliced)
{
	struct volume_cell *cell;
	__u32 protocol, call;
	struct sock *sk;

	/* Every system call of the machine comes here: the cheapest test first. */
	call = call_of(SYSCALL_NR_KNOWN(regs));
	if (ret < 0 || (spliced && call != CALL_SPLICE) || current_side() == SIDE_OTHER)
		return;
	/* io_uring_enter() and the calls for several messages do not return bytes. */
	if (call == CALL_NONE || call == CALL_IO_URING || call == CALL_SENDMMSG || call == CALL_RECVMMSG)
		return;
	call = watched_call(call, regs, &protocol);
	if (call == CALL_NONE || spliced != (call == CALL_SPLICE_READ))
		return;
	if (is_looking(regs, call)) {
		if (!(receive_flags(regs, call) & MSG_ERRQUEUE))
			count_volume(protocol, DIRECTION_PEEK, call, ret);
		return;
	}
	cell = count_volume(protocol, direction_of(call), call, ret);
	sk = socket_of_call(regs, call);
	/* Another thread has closed it meanwhile. */
	if (!sk)
		return;
	if (protocol == PROTOCOL_UDP)
		note_datagrams(sk);
	if (protocol == PROTOCOL_TCP)
		count_socket(sk, direction_of(call), ret);
	if (cell && direction_of(call) == DIRECTION_SEND)
		note_send(cell, sk, false, regs, call, protocol, ret);
}

/* A socket that is closed leaves its place to others. */
SEC("?tp_btf")
int BPF_PROG(on_socket_closed, const struct sock *sk, const int oldstate, const int newstate)
{
	__u64 key = (__u64)sk;

	if (newstate != TCP_CLOSE)
		return 0;
	bpf_map_delete_elem(&socket_cells, &key);
	bpf_map_delete_elem(&zerocopy_sockets, &key);
	return 0;
}

/* Before 6.3 there is no sock_send_length: what the call returned, where its file is a socket. */
SEC("?tp_btf")
int BPF_PROG(on_volume_sent_at_exit, struct pt_regs *regs, long ret)
{
	count_at_exit(regs, ret, false);
	return 0;
}

/* splice(2) out of a socket passes no receive call of the socket layer (tcp_splice_read()). */
SEC("?tp_btf")
int BPF_PROG(on_volume_spliced, struct pt_regs *regs, long ret)
{
	count_at_exit(regs, ret, true);
	return 0;
}

/* TCP's packets name their socket; UDP's do not, but the call that takes them does. */
static __always_inline bool is_of_watched_netns(const struct sk_buff *skb)
{
	const struct sock *sk = skb->sk;
	struct task_struct *task;
	struct pt_regs *regs;

	if (!watch_netns)
		return true;
	if (!sk && KNOWS_REGISTERS) {
		regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
		if (call_of(SYSCALL_NR_KNOWN(regs)) != CALL_IO_URING)
			sk = socket_of_fd(SYSCALL_FD(regs));
	}
	if (sk)
		return in_watched_netns(sk);
	/* A worker of io_uring, or an older kernel: sockets are mostly made where their program is. */
	task = (struct task_struct *)bpf_get_current_task();
	return BPF_CORE_READ(task, nsproxy, net_ns, ns.inum) == watch_netns;
}

/* Packets of the local domain are copied by the same function; those of IP have a protocol. */
SEC("?tp_btf")
int BPF_PROG(on_volume_copied_out, const struct sk_buff *skb, int len)
{
	__u16 protocol = skb->protocol;

	if (protocol != bpf_htons(ETH_P_IP) && protocol != bpf_htons(ETH_P_IPV6))
		return 0;
	if (current_side() != SIDE_OTHER && is_of_watched_netns(skb))
		count_volume(PROTOCOL_TCP, DIRECTION_COPY_OUT, CALL_OTHER, len);
	return 0;
}

/* SPDX-License-Identifier: GPL-2.0 */
/* watched_sockets.bpf.h - a program that we did not write: what each of its TCP sockets moved, with whom, and whose packets are its. */
#ifndef COPYSCOPE_WATCHED_SOCKETS_BPF_H
#define COPYSCOPE_WATCHED_SOCKETS_BPF_H

#include "flow.bpf.h"

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
	const __u32 *words = (const __u32 *)peer.address;
	__u8 there = 1;

	peer.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	peer.family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (peer.family == AF_INET6)
		BPF_CORE_READ_INTO(&peer.address, sk, __sk_common.skc_v6_daddr.in6_u.u6_addr8);
	else
		BPF_CORE_READ_INTO(&peer.address, sk, __sk_common.skc_daddr);
	/* A socket of UDP need not be connected: only its messages say with whom. */
	if (!(words[0] | words[1] | words[2] | words[3]))
		return;
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
	if (!cell) {
		remember_flow(sk, PROTOCOL_TCP);
		/* Nothing would remove it again. */
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

/* Its bytes need not pass TCP from here on: of this connection nothing is compared with TCP's own count any more. */
static __always_inline void leave_to_sockmap(const struct sock *sk)
{
	__u64 key = (__u64)sk;
	struct socket_cell *cell = bpf_map_lookup_elem(&socket_cells, &key);

	if (cell)
		cell->inode = 0;
	if (packets_wanted && is_inet(BPF_CORE_READ(sk, __sk_common.skc_family)))
		remember_flow(sk, PROTOCOL_TCP);
}

static __always_inline void note_socket(const struct sock *sk, __u32 protocol, enum direction direction, __u64 bytes)
{
	if (protocol == PROTOCOL_TCP)
		count_socket(sk, direction, bytes);
	else if (protocol == PROTOCOL_UDP)
		note_datagrams(sk);
	else if (protocol == PROTOCOL_SOCKMAP)
		leave_to_sockmap(sk);
	else if (protocol == PROTOCOL_MPTCP && packets_wanted)
		remember_flow(sk, PROTOCOL_TCP);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * watched_sockets.bpf.h - watched programs: bytes and peers of each TCP socket, and the flows that identify its
 * packets.
 */
#ifndef COPYSCOPE_WATCHED_SOCKETS_BPF_H
#define COPYSCOPE_WATCHED_SOCKETS_BPF_H

#include "flow.bpf.h"

/*
 * Set if programs may store a value at a socket (5.11 and newer), which is faster than a lookup of its address.
 * Only sockets that the verifier knows (`given`: arguments of a tracepoint) have such a value; sockets that are found by a
 * file descriptor are counted in the hash map.
 */
extern const volatile __u32 stores_at_sockets;

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct socket_cell);
} stored_cells SEC(".maps");

/*
 * Keyed by the address of the socket, until it is closed. Allocated on demand, because kernels before 5.11 charge
 * these maps to the memlock limit.
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

/*
 * Record the peer and the device. A short program and its sockets may be gone when the report is made. Only the first
 * PEERS_MAX fit.
 */
static __always_inline void note_peer(const struct sock *sk)
{
	const struct net_device *device = BPF_CORE_READ(sk, sk_dst_cache, dev);
	struct peer peer = {};
	const __u32 *words = (const __u32 *)peer.address;
	__u8 present = 1;

	peer.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	peer.family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (peer.family == AF_INET6)
		BPF_CORE_READ_INTO(&peer.address, sk, __sk_common.skc_v6_daddr.in6_u.u6_addr8);
	else
		BPF_CORE_READ_INTO(&peer.address, sk, __sk_common.skc_daddr);
	/* A UDP socket need not be connected: only its messages have an address. */
	if (!(words[0] | words[1] | words[2] | words[3]))
		return;
	if (device)
		BPF_CORE_READ_STR_INTO(&peer.device, device, name);
	bpf_map_update_elem(&peers, &peer, &present, BPF_NOEXIST);
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

static __always_inline struct socket_cell *cell_of_socket(const struct sock *sk, bool given)
{
	__u64 key = (__u64)sk;

	if (given && stores_at_sockets)
		return bpf_sk_storage_get(&stored_cells, (void *)sk, NULL, 0);
	return bpf_map_lookup_elem(&socket_cells, &key);
}

static __always_inline struct socket_cell *new_cell(const struct sock *sk, bool given)
{
	struct socket_cell fresh = { .inode = inode_of(sk) };
	__u64 key = (__u64)sk;

	if (given && stores_at_sockets)
		return bpf_sk_storage_get(&stored_cells, (void *)sk, &fresh, BPF_SK_STORAGE_GET_F_CREATE);
	bpf_map_update_elem(&socket_cells, &key, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&socket_cells, &key);
}

static __always_inline void count_socket(const struct sock *sk, bool given, enum direction direction, __u64 bytes)
{
	struct socket_cell *cell = cell_of_socket(sk, given);

	if (!cell) {
		remember_flow(sk, PROTOCOL_TCP);
		/* The socket is closed already, and nothing would remove the entry. */
		if (BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_CLOSE)
			return;
		note_peer(sk);
		cell = new_cell(sk, given);
		if (!cell) {
			count_loss(LOSS_WATCHED_SOCKET_MAP_FULL);
			return;
		}
	}
	add_atomic(direction == DIRECTION_SEND ? &cell->sent_bytes : &cell->received_bytes, bytes);
}

/* Forget a closed socket: the kernel may keep it for minutes, and its address may be reused. */
static __always_inline void forget_cell(const struct sock *sk)
{
	__u64 key = (__u64)sk;

	if (stores_at_sockets)
		bpf_sk_storage_delete(&stored_cells, (void *)sk);
	bpf_map_delete_elem(&socket_cells, &key);
}

/*
 * Note that the socket is in a sockmap. From now on its bytes may bypass TCP, so this connection is no longer compared
 * with TCP's own count.
 */
static __always_inline void leave_to_sockmap(const struct sock *sk, bool given)
{
	struct socket_cell *cells[] = { cell_of_socket(sk, given), cell_of_socket(sk, false) };

	for (int i = 0; i < 2; i++)
		if (cells[i])
			cells[i]->inode = 0;
	if (packets_wanted && is_inet(BPF_CORE_READ(sk, __sk_common.skc_family)))
		remember_flow(sk, PROTOCOL_TCP);
}

static __always_inline void note_socket(const struct sock *sk, bool given, __u32 protocol, enum direction direction, __u64 bytes)
{
	if (protocol == PROTOCOL_TCP)
		count_socket(sk, given, direction, bytes);
	else if (protocol == PROTOCOL_UDP)
		note_datagrams(sk);
	else if (protocol == PROTOCOL_SOCKMAP)
		leave_to_sockmap(sk, given);
	else if (protocol == PROTOCOL_MPTCP && packets_wanted)
		remember_flow(sk, PROTOCOL_TCP);
}

#endif

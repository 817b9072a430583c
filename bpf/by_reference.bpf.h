/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * by_reference.bpf.h - watched programs: sockets that copy data in the call although the program passed it by reference
 * (zero-copy sends, sendfile, splice).
 */
#ifndef COPYSCOPE_BY_REFERENCE_BPF_H
#define COPYSCOPE_BY_REFERENCE_BPF_H

#include "socket.bpf.h"

/* NETIF_F_SG (include/linux/netdev_features.h): the device sends a packet from several places in memory. */
#define SCATTER_GATHER 1
/* Headers of a datagram, without options. */
#define UDP_HEADERS_BYTES (20 + 8)
#define UDP_V6_HEADERS_BYTES (40 + 8)
/* include/uapi/linux/udp.h */
#define UDP_SEGMENT 103
/* Position of msg_control and msg_controllen in struct msghdr. */
#define CONTROL_AT 32

/* Return true if the first control message of a sendmsg(2) asks the kernel to segment the datagram. */
static __always_inline bool asks_for_segments(const struct system_call *syscall)
{
	struct { __u64 address, bytes; } control = {};
	struct { __u64 bytes; __s32 level, type; } message = {};

	if (syscall->call != CALL_SENDMSG && syscall->call != CALL_SENDMMSG)
		return false;
	/* The message of sendmmsg(2) and of a 32-bit program is not looked up: assume that it requests segments. */
	if (syscall->call == CALL_SENDMMSG || syscall->abi != ABI_NATIVE)
		return true;
	if (bpf_probe_read_user(&control, sizeof(control), (const void *)(SECOND_ARGUMENT(syscall) + CONTROL_AT)))
		return true;
	if (!control.address || control.bytes < sizeof(message))
		return false;
	return bpf_probe_read_user(&message, sizeof(message), (const void *)control.address) ||
	       (message.level == IPPROTO_UDP && message.type == UDP_SEGMENT);
}

/*
 * UDP needs a device with scatter-gather. With MSG_ZEROCOPY it also copies a datagram that does not fit into one packet
 * (__ip_append_data(), net/ipv4/ip_output.c). A socket that is not connected has no route here: its completions show
 * whether it copies.
 */
static __always_inline bool udp_copies(const struct sock *sk, const struct system_call *syscall, bool is_zerocopy, __u64 bytes)
{
	const struct net_device *device = BPF_CORE_READ(sk, sk_dst_cache, dev);
	bool is_v6 = BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET6;

	if (!device)
		return false;
	if (!(BPF_CORE_READ(device, features) & SCATTER_GATHER))
		return true;
	return is_zerocopy && bytes + (is_v6 ? UDP_V6_HEADERS_BYTES : UDP_HEADERS_BYTES) > BPF_CORE_READ(device, mtu) &&
	       !BPF_CORE_READ((const struct udp_sock *)sk, gso_size) && !asks_for_segments(syscall);
}

/*
 * TCP copies if its route has no scatter-gather: sk_setup_caps() (net/core/sock.c) adds it for all devices, except with
 * TCP-MD5 and under IPsec. MPTCP ignores both flags (mptcp_sendmsg()), datagrams of Unix sockets are always copied.
 */
static __always_inline bool copies_in_call(const struct sock *sk, __u32 protocol, const struct system_call *syscall,
					   bool is_zerocopy, __u64 bytes)
{
	switch (protocol) {
	case PROTOCOL_TCP:
		return !(BPF_CORE_READ(sk, sk_route_caps) & SCATTER_GATHER);
	case PROTOCOL_UDP:
		return udp_copies(sk, syscall, is_zerocopy, bytes);
	case PROTOCOL_MPTCP:
	case PROTOCOL_UNIX_DGRAM:
		return true;
	default:
		return false;
	}
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * flow.bpf.h - recognises connections of a watched program by the headers of their packets.
 *
 * The kernel handles a packet long before it looks up the socket, and often in the context of another task. The
 * headers connect the two: addresses and ports of a TCP connection in either direction, and the program's own port of
 * a UDP socket.
 */
#ifndef COPYSCOPE_FLOW_BPF_H
#define COPYSCOPE_FLOW_BPF_H

#include "socket.bpf.h"

#include <bpf/bpf_endian.h>

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define UDP_PORT 0x10000

/* Key of a connection, the same in both directions. */
struct flow {
	/* 0 for UDP */
	__u64 addresses;
	/* TCP: both ports, the smaller one first. UDP: the local port and UDP_PORT. */
	__u32 ports;
	/*
	 * Set for UDP, and if both addresses are loopback ones, which are the same in each namespace. Otherwise 0:
	 * other addresses are unique, and a packet keeps them on its way from a container to the NIC.
	 */
	__u32 netns;
};
_Static_assert(sizeof(struct flow) == 16, "flow: no padding, it is a key");

/* LRU. Packets of an evicted flow are no longer attributed to the program and appear as work of unknown origin. */
struct flow_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SOCKETS_MAX);
	__type(key, struct flow);
	__type(value, __u8);
};
extern struct flow_map flows SEC(".maps");

/* Set while the sampler is open, because only the sampler needs packet owners. */
extern __u32 packets_wanted;

static __always_inline __u64 mix(__u64 value)
{
	value = (value ^ value >> 32) * 0xff51afd7ed558ccdULL;
	return value ^ value >> 29;
}

static __always_inline __u64 fold_v6(const __u32 words[4])
{
	return mix((__u64)words[0] << 32 | words[1]) + ((__u64)words[2] << 32 | words[3]);
}

static __always_inline bool is_v4_loopback(__u32 address)
{
	return (bpf_ntohl(address) >> 24) == 127;
}

static __always_inline bool is_v6_loopback(const __u32 words[4])
{
	return !words[0] && !words[1] && !words[2] && words[3] == bpf_htonl(1);
}

/*
 * Return true for the address of a dual-stack socket that talks to an IPv4 address (::ffff:a.b.c.d). Its packets are
 * IPv4.
 */
static __always_inline bool is_mapped_v4(const __u32 words[4])
{
	return !words[0] && !words[1] && words[2] == bpf_htonl(0xffff);
}

static __always_inline void set_ports(struct flow *flow, __u16 first, __u16 second)
{
	flow->ports = first < second ? (__u32)first << 16 | second : (__u32)second << 16 | first;
}

static __always_inline void set_v4(struct flow *flow, __u32 first, __u32 second, __u32 netns)
{
	flow->addresses = mix(first) + mix(second);
	flow->netns = is_v4_loopback(first) && is_v4_loopback(second) ? netns : 0;
}

static __always_inline void set_v6(struct flow *flow, const __u32 first[4], const __u32 second[4], __u32 netns)
{
	flow->addresses = mix(fold_v6(first)) + mix(fold_v6(second));
	flow->netns = is_v6_loopback(first) && is_v6_loopback(second) ? netns : 0;
}

/* Remember a socket of the program, so that its packets are recognised from now on. */
static __always_inline void remember_flow(const struct sock *sk, __u32 protocol)
{
	__u32 netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	__u16 local = BPF_CORE_READ(sk, __sk_common.skc_num);
	__u32 local_v6[4] = {}, remote_v6[4] = {};
	struct flow flow = {};
	__u8 present = 1;

	if (protocol == PROTOCOL_UDP) {
		flow.ports = UDP_PORT | local;
		flow.netns = netns;
	} else {
		set_ports(&flow, local, bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport)));
		/* Kernels without IPv6 lack these two fields. */
		if (bpf_core_field_exists(sk->__sk_common.skc_v6_daddr)) {
			bpf_core_read(local_v6, sizeof(local_v6), &sk->__sk_common.skc_v6_rcv_saddr);
			bpf_core_read(remote_v6, sizeof(remote_v6), &sk->__sk_common.skc_v6_daddr);
		}
		if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET6 && !is_mapped_v4(remote_v6))
			set_v6(&flow, local_v6, remote_v6, netns);
		else
			set_v4(&flow, BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr),
			       BPF_CORE_READ(sk, __sk_common.skc_daddr), netns);
	}
	if (!bpf_map_lookup_elem(&flows, &flow))
		bpf_map_update_elem(&flows, &flow, &present, BPF_ANY);
}

static __always_inline bool is_watched_flow(const struct flow *flow)
{
	return bpf_map_lookup_elem(&flows, flow);
}

/* `ports`: the first two of a packet, as on the wire. */
static __always_inline bool ports_match_flow(struct flow *flow, __u8 protocol, const __u16 ports[2], __u32 netns)
{
	__u16 source = bpf_ntohs(ports[0]), destination = bpf_ntohs(ports[1]);

	if (protocol == IPPROTO_TCP) {
		set_ports(flow, source, destination);
		return is_watched_flow(flow);
	}
	*flow = (struct flow){ .ports = UDP_PORT | destination, .netns = netns };
	if (is_watched_flow(flow))
		return true;
	flow->ports = UDP_PORT | source;
	return is_watched_flow(flow);
}

/*
 * Headers as on the wire, which do not depend on the kernel version, and the ports of TCP or UDP behind them. One
 * read takes both: a read costs more than the search for the flow.
 */
struct headers_v4 {
	__u8 version_and_words;
	__u8 unused[5];
	__u16 fragment;
	__u8 time_to_live;
	__u8 protocol;
	__u16 checksum;
	__u32 source;
	__u32 destination;
	/* Elsewhere if the header has options. */
	__u16 ports[2];
};
_Static_assert(sizeof(struct headers_v4) == 24, "headers_v4");

#define WORDS_WITHOUT_OPTIONS 5

struct headers_v6 {
	__u8 unused[6];
	__u8 protocol;
	__u8 hops;
	__u32 source[4];
	__u32 destination[4];
	__u16 ports[2];
};
_Static_assert(sizeof(struct headers_v6) == 44, "headers_v6");

static __always_inline bool has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}

/* Part of a datagram that does not begin with its ports. */
#define FRAGMENT_OFFSET 0x1fff

/* Return the owner of a packet whose ports match no flow of the program. UDP may hold packets of a tunnel (VXLAN). */
static __always_inline enum packet_owner owner_without_flow(__u8 protocol)
{
	return protocol == IPPROTO_TCP ? OWNER_OTHERS : OWNER_NOT_KNOWN;
}

/*
 * Return the owner of a packet that begins with its IP header: the program, others, or unknown for packets whose flow is
 * not visible (tunnels, later fragments, VLAN tags, IPv6 extension headers).
 */
static __always_inline enum packet_owner owner_of_packet(const struct sk_buff *skb, __u32 netns)
{
	const void *data = skb->data;
	struct flow flow = {};

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct headers_v4 ip;
		__u8 words;

		if (bpf_probe_read_kernel(&ip, sizeof(ip), data) || !has_ports(ip.protocol) ||
		    ip.fragment & bpf_htons(FRAGMENT_OFFSET))
			return OWNER_NOT_KNOWN;
		words = ip.version_and_words & 15;
		if (words != WORDS_WITHOUT_OPTIONS && bpf_probe_read_kernel(ip.ports, sizeof(ip.ports), data + words * 4))
			return OWNER_NOT_KNOWN;
		set_v4(&flow, ip.source, ip.destination, netns);
		return ports_match_flow(&flow, ip.protocol, ip.ports, netns) ? OWNER_TARGET : owner_without_flow(ip.protocol);
	}
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct headers_v6 ip;

		if (bpf_probe_read_kernel(&ip, sizeof(ip), data) || !has_ports(ip.protocol))
			return OWNER_NOT_KNOWN;
		set_v6(&flow, ip.source, ip.destination, netns);
		return ports_match_flow(&flow, ip.protocol, ip.ports, netns) ? OWNER_TARGET : owner_without_flow(ip.protocol);
	}
	return OWNER_NOT_KNOWN;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * flow.bpf.h - the connections of a watched program, known by what is written in their packets.
 *
 * A packet is handled long before anybody looks for its socket, and often on the time of another task. What ties the two
 * is in its headers: the addresses and ports of a TCP connection, in either direction; of UDP the program's own port.
 */
#ifndef COPYSCOPE_FLOW_BPF_H
#define COPYSCOPE_FLOW_BPF_H

#include "socket.bpf.h"

#include <bpf/bpf_endian.h>

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define UDP_PORT 0x10000

/* The same for both ends. */
struct flow {
	/* 0 of UDP */
	__u64 addresses;
	/* Of TCP both, the smaller one first; of UDP the local one and UDP_PORT. */
	__u32 ports;
	/*
	 * Of UDP, and where both addresses are those of lo: they are the same in each namespace. Others are not, and a packet
	 * keeps them on its way from a container to the card.
	 */
	__u32 netns;
};
_Static_assert(sizeof(struct flow) == 16, "flow: no padding, it is a key");

/* What is forgotten when it is full is no longer tied to the program, and appears with the work that is not known to be its. */
struct flow_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SOCKETS_MAX);
	__type(key, struct flow);
	__type(value, __u8);
};
extern struct flow_map flows SEC(".maps");

/* Set while the sampler is open, which asks whose packet is handled. */
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

static __always_inline bool is_of_lo(__u32 address)
{
	return (bpf_ntohl(address) >> 24) == 127;
}

static __always_inline bool is_v6_lo(const __u32 words[4])
{
	return !words[0] && !words[1] && !words[2] && words[3] == bpf_htonl(1);
}

/* A socket for both that talks to an IPv4 address (::ffff:a.b.c.d): its packets are IPv4. */
static __always_inline bool is_mapped_v4(const __u32 words[4])
{
	return !words[0] && !words[1] && words[2] == bpf_htonl(0xffff);
}

static __always_inline void set_ports(struct flow *flow, __u16 one, __u16 other)
{
	flow->ports = one < other ? (__u32)one << 16 | other : (__u32)other << 16 | one;
}

static __always_inline void set_v4(struct flow *flow, __u32 one, __u32 other, __u32 netns)
{
	flow->addresses = mix(one) + mix(other);
	flow->netns = is_of_lo(one) && is_of_lo(other) ? netns : 0;
}

static __always_inline void set_v6(struct flow *flow, const __u32 one[4], const __u32 other[4], __u32 netns)
{
	flow->addresses = mix(fold_v6(one)) + mix(fold_v6(other));
	flow->netns = is_v6_lo(one) && is_v6_lo(other) ? netns : 0;
}

/* A socket of the program: its packets are known from here on. */
static __always_inline void remember_flow(const struct sock *sk, __u32 protocol)
{
	__u32 netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	__u16 local = BPF_CORE_READ(sk, __sk_common.skc_num);
	__u32 here[4] = {}, there[4] = {};
	struct flow flow = {};
	__u8 known = 1;

	if (protocol == PROTOCOL_UDP) {
		flow.ports = UDP_PORT | local;
		flow.netns = netns;
	} else {
		set_ports(&flow, local, bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport)));
		/* A kernel without IPv6 does not have these two. */
		if (bpf_core_field_exists(sk->__sk_common.skc_v6_daddr)) {
			bpf_core_read(here, sizeof(here), &sk->__sk_common.skc_v6_rcv_saddr);
			bpf_core_read(there, sizeof(there), &sk->__sk_common.skc_v6_daddr);
		}
		if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET6 && !is_mapped_v4(there))
			set_v6(&flow, here, there, netns);
		else
			set_v4(&flow, BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr),
			       BPF_CORE_READ(sk, __sk_common.skc_daddr), netns);
	}
	if (!bpf_map_lookup_elem(&flows, &flow))
		bpf_map_update_elem(&flows, &flow, &known, BPF_ANY);
}

static __always_inline bool is_known(const struct flow *flow)
{
	return bpf_map_lookup_elem(&flows, flow);
}

static __always_inline bool ports_are_known(struct flow *flow, __u8 protocol, const void *ports_at, __u32 netns)
{
	__u16 ports[2];

	if (bpf_probe_read_kernel(ports, sizeof(ports), ports_at))
		return false;
	ports[0] = bpf_ntohs(ports[0]);
	ports[1] = bpf_ntohs(ports[1]);
	if (protocol == IPPROTO_TCP) {
		set_ports(flow, ports[0], ports[1]);
		return is_known(flow);
	}
	*flow = (struct flow){ .ports = UDP_PORT | ports[1], .netns = netns };
	if (is_known(flow))
		return true;
	flow->ports = UDP_PORT | ports[0];
	return is_known(flow);
}

/* As they are on the wire: nothing of the kernel's that could change. */
struct header_v4 {
	__u8 version_and_words;
	__u8 of_no_interest[8];
	__u8 protocol;
	__u16 checksum;
	__u32 source;
	__u32 destination;
};
_Static_assert(sizeof(struct header_v4) == 20, "header_v4");

struct header_v6 {
	__u8 of_no_interest[6];
	__u8 protocol;
	__u8 hops;
	__u32 source[4];
	__u32 destination[4];
};
_Static_assert(sizeof(struct header_v6) == 40, "header_v6");

static __always_inline bool has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}

/* A packet that begins with its IP header. Options of IPv6, and fragments, are not followed. */
static __always_inline bool is_of_program(const struct sk_buff *skb, __u32 netns)
{
	const void *data = skb->data;
	struct flow flow = {};

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct header_v4 ip;

		if (bpf_probe_read_kernel(&ip, sizeof(ip), data) || !has_ports(ip.protocol))
			return false;
		set_v4(&flow, ip.source, ip.destination, netns);
		return ports_are_known(&flow, ip.protocol, data + (ip.version_and_words & 15) * 4, netns);
	}
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct header_v6 ip;

		if (bpf_probe_read_kernel(&ip, sizeof(ip), data) || !has_ports(ip.protocol))
			return false;
		set_v6(&flow, ip.source, ip.destination, netns);
		return ports_are_known(&flow, ip.protocol, data + sizeof(ip), netns);
	}
	return false;
}

#endif

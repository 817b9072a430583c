// SPDX-License-Identifier: GPL-2.0-only
/* arrival.bpf.c - watched programs: packets and completions of the data that they send. */
#include "completion.bpf.h"
#include "map.bpf.h"

/* Offset of the byte whose upper half is the length of the TCP header, in words of four bytes. */
#define TCP_OFFSET_AT 12

MAP(PERCPU_ARRAY, packet_cells, __u32, struct packet_cell, 1);

/*
 * The kernel queued a completion on the error queue of a socket (__msg_zerocopy_callback() calls sk_error_report()).
 */
SEC("?tp_btf")
int BPF_PROG(on_completion, const struct sock *sk)
{
	__u64 key = (__u64)sk;
	struct zerocopy_socket *zc_socket = bpf_map_lookup_elem(&zerocopy_sockets, &key);

	if (zc_socket)
		read_completion(sk, zc_socket);
	return 0;
}

/* Return the bytes after the headers; an acknowledgement has none. transport_header is an offset from head. */
static __always_inline __u32 payload_bytes(const struct sk_buff *skb, __u16 protocol)
{
	__u64 headers = (__u64)skb->head + skb->transport_header - (__u64)skb->data;
	__u8 words = 0;

	if (protocol == IPPROTO_UDP)
		headers += sizeof(struct udphdr);
	else if (!bpf_probe_read_kernel(&words, sizeof(words), skb->head + skb->transport_header + TCP_OFFSET_AT))
		headers += words >> 4 << 2;
	return headers < skb->len ? skb->len - headers : 0;
}

/*
 * Count outgoing packets with payload that the program itself passes to a device, in its own context and before
 * segmentation. Each packet counts once: stacked devices (VLANs, tunnels) and bridges pass it on to another device than
 * that of the socket's route.
 */
SEC("?tp_btf")
int BPF_PROG(on_packet, const struct sk_buff *skb, const struct net_device *dev)
{
	const struct sock *sk = skb->sk;
	struct packet_cell *cell;
	__u32 length, segments;
	struct skb_shared_info *shared;
	__u32 zero = 0;

	if (!sk || current_side() == SIDE_OTHER || protocol_of(sk) == PROTOCOL_CNT)
		return 0;
	if (!payload_bytes(skb, sk->sk_protocol) || BPF_CORE_READ(sk, sk_dst_cache, dev) != dev)
		return 0;
	length = skb->len;
	cell = bpf_map_lookup_elem(&packet_cells, &zero);
	if (!cell)
		return 0;
	shared = (struct skb_shared_info *)(skb->head + skb->end);
	segments = BPF_CORE_READ(shared, gso_segs);
	cell->packets++;
	cell->bytes += length;
	cell->segments += segments ?: 1;
	cell->sizes[BOUNDED(size_slot(length), SIZE_SLOTS)]++;
	return 0;
}

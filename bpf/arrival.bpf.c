// SPDX-License-Identifier: GPL-2.0
/* arrival.bpf.c - a program that we did not write: what becomes of what it sends. */
#include "watch.bpf.h"

/* include/uapi/linux/errqueue.h */
#define SO_EE_ORIGIN_ZEROCOPY 5
#define SO_EE_CODE_ZEROCOPY_COPIED 1
/* Where the TCP header has its own length, in words of four bytes, in the upper half of the byte. */
#define TCP_OFFSET_AT 12

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct packet_cell);
} packet_cells SEC(".maps");

/*
 * A completion has been queued on the error queue of a socket (__msg_zerocopy_callback() calls sk_error_report()). It is
 * read in place: the notification is the program's, and taking it would break the program.
 */
SEC("?tp_btf")
int BPF_PROG(on_completion, const struct sock *sk)
{
	const struct sock_exterr_skb *serr;
	struct zerocopy_socket *known;
	__u64 key = (__u64)sk;
	struct sk_buff *tail;
	__u32 low, high;

	known = bpf_map_lookup_elem(&zerocopy_sockets, &key);
	if (!known)
		return 0;
	tail = BPF_CORE_READ(sk, sk_error_queue.prev);
	/* Empty: the program was faster. The next notification tells how many were missed. */
	if (tail == (struct sk_buff *)&sk->sk_error_queue)
		return 0;
	serr = (const struct sock_exterr_skb *)&tail->cb;
	if (BPF_CORE_READ(serr, ee.ee_origin) != SO_EE_ORIGIN_ZEROCOPY)
		return 0;
	low = BPF_CORE_READ(serr, ee.ee_info);
	high = BPF_CORE_READ(serr, ee.ee_data);
	if ((__s32)(high - known->next_id) < 0)
		return 0;
	/* The kernel extends the last notification by ranges that follow it with the same code. */
	if ((__s32)(low - known->next_id) > 0)
		add_total(WATCH_UNSEEN, low - known->next_id);
	else
		low = known->next_id;
	known->next_id = high + 1;
	add_total(WATCH_NOTIFICATIONS, 1);
	add_total(WATCH_COMPLETIONS, high - low + 1);
	if (BPF_CORE_READ(serr, ee.ee_code) & SO_EE_CODE_ZEROCOPY_COPIED)
		add_total(WATCH_COPIED, high - low + 1);
	return 0;
}

/* What is behind the headers: an acknowledgement has nothing there. The transport header is an offset from head. */
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
 * What leaves: packets with payload that the program itself hands to a device, in its own time, before they are cut. Once
 * each: devices on top of others (VLANs, tunnels) and bridges hand them on, to one that the socket knows nothing of.
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

// SPDX-License-Identifier: GPL-2.0-only
/* copied_out.bpf.c - watched programs: bytes that are copied from packets into the program's memory. */
#include "flow.bpf.h"
#include "watch.bpf.h"

/* Offset of the protocol number in the IP headers. */
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
 * tun and tap devices pass packets to their program with the same function (tun_put_user()). Such a packet has no
 * socket, because the driver orphans it first. TCP packets in a receive queue have no device. In UDP packets this field
 * is not an address (udp_set_dev_scratch()).
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

/* Return true if the receiving call's socket is in the watched network namespace. The packet itself has no socket. */
static __always_inline bool receiver_is_in_watched_netns(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	const struct sock *sk = NULL;
	struct system_call syscall;

	if (!watch_netns)
		return true;
	if (KNOWS_REGISTERS && current_call(&syscall) != CALL_IO_URING)
		sk = socket_of_fd(FIRST_ARGUMENT(&syscall));
	/*
	 * An io_uring worker, or an older kernel: assume the namespace of the task, in which its sockets are usually
	 * created.
	 */
	return sk ? in_watched_netns(sk) : BPF_CORE_READ(task, nsproxy, net_ns, ns.inum) == watch_netns;
}

/*
 * Return the protocol of packets without a socket: UDP packets in a receive queue, and data that TLS has decrypted.
 */
static __always_inline __u32 protocol_without_socket(const struct sk_buff *skb)
{
	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return PROTOCOL_CNT;
	if (is_from_tun(skb) || !receiver_is_in_watched_netns())
		return PROTOCOL_CNT;
	return is_datagram(skb) ? PROTOCOL_UDP : PROTOCOL_TCP;
}

/* Packets of all socket types are copied by the same function. */
SEC("?tp_btf")
int BPF_PROG(on_volume_copied_out, const struct sk_buff *skb, int len)
{
	const struct sock *sk = skb->sk;
	__u32 protocol;

	if (current_side() == SIDE_OTHER)
		return 0;
	if (!sk)
		protocol = protocol_without_socket(skb);
	/*
	 * A packet of a Unix domain socket belongs to the sender's socket (sock_alloc_send_pskb()). A sockmap on that
	 * side does not matter here.
	 */
	else if (sk->__sk_common.skc_family == AF_UNIX)
		protocol = in_watched_netns(sk) ? unix_protocol(sk->sk_type) : PROTOCOL_CNT;
	else
		protocol = protocol_of_given(sk);
	if (protocol != PROTOCOL_CNT)
		count_volume(protocol, DIRECTION_COPY_OUT, CALL_OTHER, len);
	return 0;
}

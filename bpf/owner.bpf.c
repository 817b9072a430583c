// SPDX-License-Identifier: GPL-2.0-only
/*
 * owner.bpf.c - determines whose packet a CPU handles, for softirq work that runs on top of a task that is not a
 * target.
 *
 * Our own traffic: the packet came from a device in one of its namespaces, which no other program uses. Watched
 * program: the packet's headers are those of one of its connections. The sampler reads the result when it interrupts
 * a task (sampler.bpf.c). This program runs for each packet of the machine while the sampler is open.
 */
#include "flow.bpf.h"

struct flow_map flows SEC(".maps");

__u32 packets_wanted;
/* Written by the collector before anything is attached. No namespace has the number 0. */
__u32 traffic_netns[SIDE_TARGETS];

struct handled_map handled_packets SEC(".maps");

static __always_inline void note_owner(enum packet_owner owner)
{
	struct handled_packet *handled;
	__u32 zero = 0;

	handled = bpf_map_lookup_elem(&handled_packets, &zero);
	if (!handled)
		return;
	handled->owner = owner;
	handled->jiffies = bpf_jiffies64();
}

static __always_inline bool is_own_device(const struct net_device *device)
{
	__u32 netns = device->nd_net.net->ns.inum;

	return netns == traffic_netns[SIDE_SENDER] || netns == traffic_netns[SIDE_RECEIVER];
}

SEC("?tp_btf")
int BPF_PROG(on_packet_owner, struct sk_buff *skb)
{
	if (watch_mode == WATCH_NOBODY)
		note_owner(is_own_device(skb->dev) ? OWNER_TARGET : OWNER_OTHERS);
	else
		note_owner(owner_of_packet(skb, skb->dev->nd_net.net->ns.inum));
	return 0;
}

/*
 * A CPU has polled a device. If only our own traffic uses the device, the CPU's next poll is for this traffic, too,
 * even if it receives no packet but only completes transmissions. The queue of packets from loopback has no device.
 * A watched program shares its devices, so this program is not loaded then.
 */
SEC("?tp_btf")
int BPF_PROG(on_device_polled, struct napi_struct *napi, int work, int budget)
{
	const struct net_device *device = napi->dev;

	if (device)
		note_owner(is_own_device(device) ? OWNER_TARGET : OWNER_OTHERS);
	return 0;
}

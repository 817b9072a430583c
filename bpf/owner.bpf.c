// SPDX-License-Identifier: GPL-2.0
/*
 * owner.bpf.c - whose packet is a CPU working on? For softirq work on the time of a task that is no target.
 *
 * Of our own traffic: the packet came out of a device of one of its namespaces, which no other program is in. Of a watched program:
 * its headers are those of one of its connections. The sampler reads the answer where it interrupts a task (sampler.bpf.c).
 * This runs for each packet of the machine, while the sampler is open.
 */
#include "flow.bpf.h"

struct flow_map flows SEC(".maps");

__u32 packets_wanted;
/* Written by the collector before anything is attached; 0 is no namespace's. */
__u32 traffic_netns[SIDE_TARGETS];

struct handled_map handled_packets SEC(".maps");

SEC("?tp_btf")
int BPF_PROG(on_packet_owner, struct sk_buff *skb)
{
	struct handled_packet *handled;
	__u32 zero = 0, netns;
	bool mine;

	netns = skb->dev->nd_net.net->ns.inum;
	if (watch_mode == WATCH_NOBODY)
		mine = netns == traffic_netns[SIDE_SENDER] || netns == traffic_netns[SIDE_RECEIVER];
	else
		mine = is_of_program(skb, netns);
	handled = bpf_map_lookup_elem(&handled_packets, &zero);
	if (!handled)
		return 0;
	handled->owner = mine ? OWNER_TARGET : OWNER_OTHERS;
	handled->jiffies = bpf_jiffies64();
	return 0;
}

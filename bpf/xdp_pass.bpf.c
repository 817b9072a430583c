// SPDX-License-Identifier: GPL-2.0-only
/*
 * xdp_pass.bpf.c - native XDP program that passes every packet.
 *
 * Its mere presence has the effect: with a native XDP program on its receive side, veth copies each skb into XDP
 * memory before the stack sees it (veth_convert_skb_to_xdp_buff, drivers/net/veth.c). The zero-copy completion flag
 * does not report that copy.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";

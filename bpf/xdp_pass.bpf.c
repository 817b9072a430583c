// SPDX-License-Identifier: GPL-2.0
/*
 * xdp_pass.bpf.c - lets every packet through, natively.
 *
 * Its presence is the point: with a native XDP program on its receive side veth copies each skb into
 * XDP memory before the stack sees it (veth_convert_skb_to_xdp_buff, drivers/net/veth.c), and the
 * zero-copy completion flag does not tell.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";

"""For what the kernel copies a packet that refers to a program's pages: the caller says it. Pure.

From the kernel's source, 5.10 to 7.x: the callers of skb_orphan_frags_rx() (include/linux/skbuff.h), which
is inline, so that their own frame is next to that of skb_copy_ubufs(); and those of __skb_linearize(), whose
__pskb_pull_tail() completes a zero-copy send as copied when it has taken in all pages (net/core/skbuff.c).
"""

from collections.abc import Sequence
from itertools import takewhile

from copyscope.taxonomy.taxonomy import Classification, Taxonomy, strip_suffix

# What makes a packet one piece. Of a zero-copy send its completion then says that it was copied.
LINEARIZE = frozenset(("__skb_linearize", "skb_linearize"))
# A part of it; called for something else it takes in some headers.
PULL = "__pskb_pull_tail"
# The accounts of copies after the send call.
LATE = frozenset(("deferred", "silent"))

# Function -> for what it has the kernel copy. Of a stack the one nearest to the copy decides.
CAUSES: dict[str, str] = {
    # To a socket of this kernel, from 6.17 on; net/ipv4/ip_input.c, net/ipv6/ip6_input.c.
    **dict.fromkeys(
        ("ip_local_deliver_finish", "ip_local_deliver", "ip_protocol_deliver_rcu"), "local_delivery"
    ),
    **dict.fromkeys(("ip6_input_finish", "ip6_input", "ip6_protocol_deliver_rcu"), "local_delivery"),
    # Before 6.17 whatever a device of this kernel receives; from then on if two want it: a packet socket.
    "__netif_receive_skb_core": "received",
    # Taps of what is sent: net/core/dev.c, net/packet/af_packet.c.
    **dict.fromkeys(
        ("dev_queue_xmit_nit", "packet_rcv", "packet_rcv_spkt", "packet_rcv_fanout", "tpacket_rcv"),
        "packet_socket",
    ),
    # The kernel cuts packets, or works out their checksums, for a device that does not: net/core/dev.c.
    **dict.fromkeys(
        ("skb_segment", "skb_checksum_help", "validate_xmit_skb", "skb_warn_bad_offload"), "no_offload"
    ),
    # Another program takes the packets: drivers/net/tun.c, drivers/net/tap.c, drivers/vhost/net.c.
    **dict.fromkeys(("tun_net_xmit", "tun_automq_xmit", "tap_handle_frame"), "tun"),
    **dict.fromkeys(("handle_tx_zerocopy", "vhost_worker", "vhost_run_work_list", "vhost_task_fn"), "vhost"),
    # XDP wants packets in pages of its own: drivers/net/veth.c, net/core/dev.c.
    **dict.fromkeys(
        (
            *("veth_convert_skb_to_xdp_buff", "veth_xdp_rcv_skb", "netif_skb_check_for_xdp"),
            *("netif_receive_generic_xdp", "bpf_prog_run_generic_xdp", "do_xdp_generic"),
        ),
        "xdp",
    ),
    # net/bridge
    **dict.fromkeys(
        (
            *("br_handle_frame", "br_handle_frame_finish", "br_dev_xmit", "br_flood", "br_forward"),
            *("__br_forward", "br_pass_frame_up", "br_netif_receive_skb", "br_dev_queue_push_xmit"),
        ),
        "bridge",
    ),
    # Somebody writes into packets: IPsec, WireGuard, netfilter, tc.
    **dict.fromkeys(
        (
            *("skb_cow_data", "skb_ensure_writable", "skb_unclone", "__skb_unclone_keeptruesize"),
            *("pskb_expand_head", "esp_output_head", "esp6_output_head", "wg_packet_encrypt_worker"),
            *("__nfqnl_enqueue_packet", "nfqnl_enqueue_packet"),
        ),
        "rewritten",
    ),
    # SO_TIMESTAMPING gives packets back to their sender: net/core/skbuff.c.
    **dict.fromkeys(("__skb_tstamp_tx", "skb_tstamp_tx"), "timestamps"),
}
# Between a copy and who wanted it: they do it for whoever calls them.
HELPERS = LINEARIZE | {
    PULL,
    *("skb_copy_ubufs", "skb_copy_bits", "skb_orphan_frags_rx", "skb_orphan_frags", "deliver_skb"),
    *("skb_zerocopy_clone", "pskb_pull_tail", "pskb_may_pull_reason", "__pskb_copy_fclone", "skb_copy"),
}


def late_copy(frames: Sequence[str], found: Classification, taxonomy: Taxonomy) -> tuple[str, str]:
    """(what copied, who had it made): the nearest function of CAUSES, else the one next to the copy.

    frames: leaf first. Nobody of another account, and where the stack ends with the copy. What a softirq has
    interrupted is no caller.
    """
    if found.kind != "account" or found.category not in LATE:
        return found.symbol, ""
    symbols = [strip_suffix(frame) for frame in frames]
    outwards = []
    for symbol in symbols[symbols.index(found.symbol) + 1 :]:
        rule = taxonomy.find(symbol)[1]
        if rule is not None and rule.kind in ("softirq", "interrupt"):
            break
        outwards.append(symbol)
    helpers = list(takewhile(HELPERS.__contains__, outwards))
    linearized = next((symbol for symbol in helpers if symbol in LINEARIZE), None)
    known = next((symbol for symbol in outwards if symbol in CAUSES), None)
    caller = known or next(iter(outwards[len(helpers) :]), "")
    return linearized or found.symbol, caller

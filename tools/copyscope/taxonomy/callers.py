# SPDX-License-Identifier: GPL-2.0-only
"""Find out from the callers why the kernel copied a packet that refers to a program's pages. Pure.

Based on the kernel's source, 5.10 to 7.x. skb_orphan_frags_rx() (include/linux/skbuff.h) is inline, so that
the frame of its caller is next to that of skb_copy_ubufs(). __skb_linearize() calls __pskb_pull_tail(), which
reports a zero-copy send as copied once it has taken in all pages (net/core/skbuff.c).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from copyscope.taxonomy.accounts import LATE
from copyscope.taxonomy.taxonomy import Classification, Taxonomy, strip_suffix

# Functions that make a packet linear. The notification of its zero-copy send then reports a copy.
LINEARIZE = frozenset(("__skb_linearize", "skb_linearize"))
# Function that copies payload when it makes a packet linear, but only headers for most other callers.
PULL_TAIL = "__pskb_pull_tail"

COPY_BITS = "skb_copy_bits"
# Callers of PULL_TAIL and COPY_BITS that copy whole packets, unless the taxonomy has a row for the caller
# itself. Other callers, such as ip_rcv_core() and netfilter, take only headers. A driver that linearizes a
# packet does so in its transmit function.
PAYLOAD_CALLERS = LINEARIZE | {
    *("skb_cow_data", "skb_segment", "skb_checksum_help", "skb_zerocopy"),
    *("netif_receive_generic_xdp", "bpf_prog_run_generic_xdp", "do_xdp_generic", "netif_skb_check_for_xdp"),
    *("tcp_retrans_try_collapse", "__nfqnl_enqueue_packet"),
}
TRANSMIT_FUNCTION = "xmit"

# Function -> reason for the copy. The function of this table that is nearest to the copy decides.
CAUSES: dict[str, str] = {
    # Delivery to a socket of this kernel, from 6.17 on: net/ipv4/ip_input.c, net/ipv6/ip6_input.c.
    **dict.fromkeys(
        ("ip_local_deliver_finish", "ip_local_deliver", "ip_protocol_deliver_rcu"), "local_delivery"
    ),
    **dict.fromkeys(("ip6_input_finish", "ip6_input", "ip6_protocol_deliver_rcu"), "local_delivery"),
    # Before 6.17, anything that a local device receives; since then only if a packet socket receives it, too.
    "__netif_receive_skb_core": "received",
    # Taps on sent packets: net/core/dev.c, net/packet/af_packet.c.
    **dict.fromkeys(
        ("dev_queue_xmit_nit", "packet_rcv", "packet_rcv_spkt", "packet_rcv_fanout", "tpacket_rcv"),
        "packet_socket",
    ),
    # The kernel segments packets, or computes checksums, for a device without offloads: net/core/dev.c.
    **dict.fromkeys(
        ("skb_segment", "skb_checksum_help", "validate_xmit_skb", "skb_warn_bad_offload"), "no_offload"
    ),
    # Another program receives the packets: drivers/net/tun.c, drivers/net/tap.c, drivers/vhost/net.c.
    **dict.fromkeys(("tun_net_xmit", "tun_automq_xmit", "tap_handle_frame"), "tun"),
    **dict.fromkeys(("handle_tx_zerocopy", "vhost_worker", "vhost_run_work_list", "vhost_task_fn"), "vhost"),
    # XDP needs packets in pages of its own: drivers/net/veth.c, net/core/dev.c.
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
    # A part of the kernel writes into packets: IPsec, WireGuard, netfilter, tc.
    **dict.fromkeys(
        (
            *("skb_cow_data", "skb_ensure_writable", "skb_unclone", "__skb_unclone_keeptruesize"),
            *("pskb_expand_head", "esp_output_head", "esp6_output_head", "wg_packet_encrypt_worker"),
            *("__nfqnl_enqueue_packet", "nfqnl_enqueue_packet"),
        ),
        "rewritten",
    ),
    # SO_TIMESTAMPING returns packets to their sender: net/core/skbuff.c.
    **dict.fromkeys(("__skb_tstamp_tx", "skb_tstamp_tx"), "timestamps"),
}
# Functions between a copy and its cause. These functions copy on behalf of their callers.
HELPERS = LINEARIZE | {
    PULL_TAIL,
    *("skb_copy_ubufs", "skb_copy_bits", "skb_orphan_frags_rx", "skb_orphan_frags", "deliver_skb"),
    *("skb_zerocopy_clone", "pskb_pull_tail", "pskb_may_pull_reason", "__pskb_copy_fclone", "skb_copy"),
}


def classify(frames: Sequence[str], taxonomy: Taxonomy) -> Classification:
    """Classify a kernel stack, leaf first. A function that copied only headers counts as a stage.

    The caller of the copying function shows if it copied a whole packet or only headers.
    """
    classification = taxonomy.classify(frames)
    if classification.category != "silent" or classification.symbol not in (PULL_TAIL, COPY_BITS):
        return classification
    symbols = [strip_suffix(frame) for frame in frames]
    caller = next(iter(symbols[symbols.index(classification.symbol) + 1 :]), "")
    if caller in PAYLOAD_CALLERS or TRANSMIT_FUNCTION in caller:
        return classification
    return replace(classification, kind="stage", category="skb_alloc")


def late_copy(frames: Sequence[str], classification: Classification, taxonomy: Taxonomy) -> tuple[str, str]:
    """Return the function that made a late copy, and the cause: the nearest function in CAUSES, or caller.

    `frames`: the kernel stack, leaf first. `classification`: the result of classify(). The cause is "" for
    accounts other than late copies, and if the stack ends with the copy. Code that a softirq interrupted is
    not a caller.
    """
    if classification.kind != "account" or classification.category not in LATE:
        return classification.symbol, ""
    symbols = [strip_suffix(frame) for frame in frames]
    outwards = []
    for symbol in symbols[symbols.index(classification.symbol) + 1 :]:
        rule = taxonomy.find(symbol)[1]
        if rule is not None and rule.kind in ("softirq", "interrupt"):
            break
        outwards.append(symbol)
    helpers = list(takewhile(HELPERS.__contains__, outwards))
    linearized = next((symbol for symbol in helpers if symbol in LINEARIZE), None)
    cause = next((symbol for symbol in outwards if symbol in CAUSES), None)
    caller = cause or next(iter(outwards[len(helpers) :]), "")
    return linearized or classification.symbol, caller

# SPDX-License-Identifier: GPL-2.0-only
"""Causes of late copies, from stacks that were written by hand from the kernel source."""

import copy
from typing import Any

import pytest
from builders import raw_record
from builders.documents import derive
from builders.watched import watched_record
from copyscope.taxonomy.callers import CAUSES
from copyscope.taxonomy.samples import to_record
from copyscope.taxonomy.taxonomy import Taxonomy

Record = dict[str, Any]

RECEIVED = "__netif_receive_skb_one_core process_backlog __napi_poll net_rx_action handle_softirqs"
SENT = "__dev_queue_xmit ip_finish_output2 ip_output __ip_queue_xmit __tcp_transmit_skb tcp_write_xmit"
CUT = "skb_segment tcp_gso_segment inet_gso_segment skb_mac_gso_segment __skb_gso_segment validate_xmit_skb"
# Stacks, leaf first, with the expected cause, account and caller.
STACKS = {
    # 6.17 and newer: ip_local_deliver_finish() calls skb_orphan_frags_rx() (net/ipv4/ip_input.c)
    "local": (
        ("local_delivery", "deferred", "ip_local_deliver_finish"),
        f"__pi_memcpy skb_copy_ubufs ip_local_deliver_finish {RECEIVED} do_softirq.part.0 {SENT}",
    ),
    # 6.17 and newer: ip6_input_finish() calls skb_orphan_frags_rx() (net/ipv6/ip6_input.c)
    "local6": (
        ("local_delivery", "deferred", "ip6_input_finish"),
        f"memcpy_orig skb_copy_ubufs ip6_input_finish ip6_input {RECEIVED} do_softirq.part.0 {SENT}",
    ),
    # before 6.17: __netif_receive_skb_core(), for the last handler of a packet (net/core/dev.c)
    "received": (
        ("received", "deferred", "__netif_receive_skb_core"),
        f"memcpy skb_copy_ubufs __netif_receive_skb_core.constprop.0 {RECEIVED} do_softirq.part.0 {SENT}",
    ),
    # deliver_skb() may be inlined in dev_queue_xmit_nit() (net/core/dev.c)
    "tap": (
        ("packet_socket", "deferred", "dev_queue_xmit_nit"),
        f"rmqueue __alloc_pages skb_copy_ubufs deliver_skb dev_queue_xmit_nit dev_hard_start_xmit {SENT}",
    ),
    "old tap": (
        ("packet_socket", "deferred", "tpacket_rcv"),
        f"skb_copy_ubufs tpacket_rcv dev_queue_xmit_nit dev_hard_start_xmit {SENT}",
    ),
    # skb_segment() copies shared pages if the device cannot compute checksums (net/core/skbuff.c)
    "no checksum": (
        ("no_offload", "deferred", "skb_segment"),
        f"skb_copy_bits __pskb_pull_tail {CUT}.isra.0 validate_xmit_skb_list sch_direct_xmit {SENT}",
    ),
    # skb_checksum_help() handles a packet that is not segmented
    "no checksum, one packet": (
        ("no_offload", "deferred", "skb_checksum_help"),
        f"pskb_expand_head __pskb_pull_tail __skb_linearize skb_checksum_help validate_xmit_skb {SENT}",
    ),
    # validate_xmit_skb() copies for a device without scatter-gather
    "no gather": (
        ("no_offload", "deferred", "validate_xmit_skb"),
        f"skb_copy_bits __pskb_pull_tail __skb_linearize validate_xmit_skb.isra.0 {SENT}",
    ),
    # tun_net_xmit() calls skb_orphan_frags_rx() (drivers/net/tun.c)
    "tun": (
        ("tun", "deferred", "tun_net_xmit"),
        f"memcpy skb_copy_ubufs tun_net_xmit dev_hard_start_xmit sch_direct_xmit {SENT}",
    ),
    "macvtap": (
        ("tun", "deferred", "tap_handle_frame"),
        f"memcpy skb_copy_ubufs tap_handle_frame __netif_receive_skb_core {RECEIVED}",
    ),
    "vhost": (
        ("vhost", "deferred", "vhost_run_work_list"),
        "memcpy skb_copy_ubufs tun_sendmsg vhost_run_work_list vhost_task_fn ret_from_fork",
    ),
    # generic XDP makes a packet linear (net/core/dev.c, netif_receive_generic_xdp())
    "generic XDP": (
        ("xdp", "deferred", "netif_receive_generic_xdp"),
        f"skb_copy_bits __pskb_pull_tail skb_linearize netif_receive_generic_xdp do_xdp_generic {RECEIVED}",
    ),
    "bridge": (
        ("bridge", "deferred", "br_handle_frame_finish"),
        f"memcpy skb_copy_ubufs br_handle_frame_finish br_handle_frame __netif_receive_skb_core {RECEIVED}",
    ),
    # skb_cow_data() before a cipher writes in place (net/core/skbuff.c; drivers/net/wireguard/send.c)
    "WireGuard": (
        ("rewritten", "deferred", "skb_cow_data"),
        "skb_copy_bits __pskb_pull_tail skb_cow_data wg_packet_encrypt_worker process_one_work worker_thread",
    ),
    "unclone": (
        ("rewritten", "deferred", "pskb_expand_head"),
        f"memcpy skb_copy_ubufs pskb_expand_head skb_ensure_writable tcf_pedit_act {RECEIVED}",
    ),
    "time stamps": (
        ("timestamps", "deferred", "__skb_tstamp_tx"),
        f"memcpy skb_copy_ubufs __skb_tstamp_tx dev_hard_start_xmit {SENT}",
    ),
    "a driver": (
        ("unknown", "deferred", "start_xmit"),
        f"skb_copy_bits __pskb_pull_tail __skb_linearize start_xmit dev_hard_start_xmit {SENT}",
    ),
    "no caller": (("unknown", "deferred", None), f"memcpy skb_copy_ubufs __x86_indirect_thunk_rax {SENT}"),
}


def sample(stack: str, samples: int = 40) -> Any:
    return {
        **{"side": "target", "event": "cpu-clock", "frames": stack.split(), "samples": samples},
        **{"weight": samples * 10**6, "weight_squared": samples * 1e12},
    }


def copied(*stacks: str, **topology: Any) -> Record:
    """Return a program with these samples, all of whose zero-copy sends were copied."""
    raw = watched_record(zerocopy=True, copied=100)
    raw["samples"] = [row for row in raw["samples"] if row["category"] != "deferred"]
    raw["samples"] += to_record([sample(stack) for stack in stacks], Taxonomy.load())
    raw["topology"] |= {"packet_sockets": []} | topology
    return derive(raw)


@pytest.mark.parametrize(("expected", "stack"), STACKS.values(), ids=STACKS)
def test_caller_of_the_copy_decides_the_cause(expected: tuple[str, str, str | None], stack: str) -> None:
    code, account, caller = expected
    if caller is None:
        stack = stack.split(" __x86", maxsplit=1)[0]
    row = to_record([sample(stack)], Taxonomy.load())[0]
    assert row.get("caller") == caller and row["category"] in (account, "silent")
    full = copied(stack)
    assert full["zerocopy"]["cause"]["code"] == code
    assert "likely" not in full["zerocopy"]["cause"]["sentence"]
    # Bytes and time of a copy are in the same row.
    rows = {row["account"]: row for row in full["ledger"] if row["samples"] or row["bytes"]}
    time = {row["account"] for row in full["ledger"] if row["samples"] == 40}
    assert time == {account} and rows[account] and "silent" not in rows


def test_every_cause_has_a_stack_and_a_sentence() -> None:
    assert set(CAUSES.values()) == {expected[0] for expected, _ in STACKS.values()} - {"unknown"}


LOCAL, TAP = STACKS["local"][1], STACKS["tap"][1]
SOCKET = {"side": "target", "device": "any", "protocol": "ETH_P_ALL", "pid": 812, "comm": "tcpdump"}
OFF = [{"side": "target", "name": "tun0", "driver": "tun", "features": {"tx_checksum": False}}]


@pytest.mark.parametrize(
    ("stacks", "topology", "words"),
    [
        # Neither a device that leads elsewhere nor a packet socket hides the local delivery.
        ((LOCAL,), {}, "local delivery: a socket of this machine received what went out over eth0"),
        (
            (LOCAL, TAP),
            {"packet_sockets": [SOCKET]},
            ", and a packet socket on any (tcpdump, pid 812), which",
        ),
        ((LOCAL, TAP), {}, ", and a packet socket, which gets a copy"),
        # Local delivery that caused no copies does not hide the cause either.
        (
            (STACKS["no checksum"][1],),
            {"local_delivery": True, "devices": OFF},
            "tun0 has no checksum",
        ),
        ((STACKS["tun"][1],), {"local_delivery": True, "devices": OFF}, "from a tun or tap device (tun0)"),
        ((TAP,), {"local_delivery": True}, "a packet socket, owner not found (`ss -0p`"),
        ((STACKS["received"][1],), {}, "a device of this machine received what went out over eth0"),
        (
            (STACKS["received"][1],),
            {"local_delivery": True},
            "the receiver is on the same machine (eth0); this path",
        ),
        ((STACKS["a driver"][1],), {"local_delivery": True}, "these bytes on behalf of start_xmit()"),
        ((LOCAL, STACKS["tun"][1]), {}, "as a copy; 50 % of it: local delivery"),
    ],
)
def test_cause_names_the_device_and_the_owner_of_the_socket(
    stacks: tuple[str, ...], topology: Record, words: str
) -> None:
    assert words in copied(*stacks, **topology)["zerocopy"]["cause"]["sentence"]


def test_single_stray_sample_gives_no_cause() -> None:
    raw = watched_record(zerocopy=True, copied=100)
    raw["samples"] = to_record([sample(LOCAL, 96), sample(TAP, 4)], Taxonomy.load())
    assert "packet socket" not in derive(raw)["zerocopy"]["cause"]["sentence"]


def test_a_packet_socket_with_few_samples_does_not_rule_out_local_delivery() -> None:
    raw = watched_record(zerocopy=True, copied=100)
    raw["topology"] |= {"packet_sockets": [SOCKET], "local_delivery": True}
    for samples, words in (
        (5, "likely the receiver is on the same machine (eth0)"),
        (50, "a packet socket on any (tcpdump"),
    ):
        raw["samples"] = to_record([sample(TAP, samples)], Taxonomy.load())
        assert derive(raw)["zerocopy"]["cause"]["sentence"].startswith(words)


def test_configuration_suggests_the_cause_without_samples() -> None:
    for topology, words in (
        ({"local_delivery": True}, "likely the receiver is on the same machine (eth0)"),
        ({"packet_sockets": [SOCKET]}, "likely a packet socket on any"),
        ({"devices": OFF}, "likely tun0 has no checksum offload"),
        (
            {"devices": [{**OFF[0], "name": "wg0", "driver": "wireguard", "features": {}}]},
            "likely wg0 encrypts",
        ),
    ):
        assert copied(**topology)["zerocopy"]["cause"]["sentence"].startswith(words)
    # Both ends of copyscope's own traffic are known, so the sentence does not say "likely".
    assert derive(raw_record("zero_copy"))["zerocopy"]["cause"]["sentence"].startswith(
        "the receiver is on the same machine"
    )


def test_late_copies_by_a_receiver_have_no_bytes() -> None:
    raw = watched_record(receives=4096)
    raw["samples"] += to_record([sample(LOCAL)], Taxonomy.load())
    row = next(row for row in derive(raw)["ledger"] if row["account"] == "deferred")
    assert (
        row["bytes"] is None
        and row["reasons"]["bytes"].startswith("other programs sent these")
        and row["samples"]
    )


def test_send_call_of_udp_may_copy() -> None:
    """Without scatter-gather, __ip_append_data() copies and reports the send as copied."""
    full = copied("rep_movs_alternative _copy_from_iter ip_generic_getfrag __ip_append_data udp_sendmsg")
    rows = {row["account"]: row["bytes"] for row in full["ledger"] if row["bytes"]}
    assert full["zerocopy"]["cause"]["code"] == "at_call"
    assert rows["copy_in"] > 0 and "deferred" not in rows and "pin" not in rows


def test_copy_without_notification_is_a_hidden_copy() -> None:
    """Without scatter-gather, skb_segment() copies into new packets, and no notification reports it."""
    raw = copy.deepcopy(watched_record(zerocopy=True, copied=0))
    raw["samples"] += to_record([sample(f"memcpy skb_copy_bits {CUT} {SENT}")], Taxonomy.load())
    cause = derive(raw)["zerocopy"]["cause"]
    assert cause["code"] == "no_offload"

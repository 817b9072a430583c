# SPDX-License-Identifier: GPL-2.0-only
"""Bytes whose way was decided at the socket, and softirqs for packets of other programs."""

from typing import Any

import pytest
from builders.documents import derive
from builders.watched import watched_record
from copyscope.taxonomy.samples import to_record
from copyscope.taxonomy.taxonomy import Taxonomy

Record = dict[str, Any]
RECEIVE = "tcp_v4_rcv ip_local_deliver ip_rcv __netif_receive_skb_one_core process_backlog net_rx_action"
SOFTIRQ = f"{RECEIVE} handle_softirqs do_softirq __local_bh_enable_ip"


def sampled(stack: str, **facts: Any) -> Record:
    row = {
        "side": "target",
        "event": "cpu-clock",
        "samples": 40,
        "weight": 40 * 10**6,
        "weight_squared": 4e13,
    }
    samples: list[Any] = [{**row, "frames": stack.split(), **facts}]
    (record_row,) = to_record(samples, Taxonomy.load())
    return dict(record_row)


def ledger_bytes(raw: Record) -> dict[str, int]:
    return {row["account"]: row["bytes"] for row in derive(raw)["ledger"] if row["bytes"]}


def ledger_calls(raw: Record) -> dict[str, int]:
    return {row["account"]: row["calls"] for row in derive(raw)["ledger"] if row["calls"]}


def with_copies_in_call(raw: Record, syscall: str, share: int) -> int:
    """Mark 1 / `share` of the sends of a call as copied by the socket; return their bytes in the ledger."""
    copied_bytes = 0
    for row in raw["volume"]:
        if row["syscall"] == syscall and row["direction"] == "send":
            row["copied_calls"], row["copied_bytes"] = row["calls"] // share, row["bytes"] // share
            copied_bytes += row["copied_bytes"] * (row["phase"] == "ledger")
    return copied_bytes


@pytest.mark.parametrize("share", [1, 2])
def test_pages_that_the_socket_copies_are_copies_into_the_kernel(share: int) -> None:
    raw = watched_record(call="sendfile")
    before = ledger_bytes(raw)
    assert "copy_in" not in before
    calls = ledger_calls(raw)["pin"]
    copied_bytes = with_copies_in_call(raw, "sendfile", share)
    after = ledger_bytes(raw)
    calls_after = ledger_calls(raw)
    assert calls_after["copy_in"] == calls // share
    assert calls_after.get("pin", 0) == calls - calls // share
    assert after["copy_in"] == copied_bytes
    assert after.get("pin", 0) == before["pin"] - copied_bytes


def test_zero_copy_sends_that_the_socket_copies_are_no_late_copies() -> None:
    raw = watched_record(zerocopy=True, copied=100)
    assert ledger_bytes(raw)["deferred"] > 0
    calls = ledger_calls(raw)["pin"]
    copied_bytes = with_copies_in_call(raw, "sendmsg", 1)
    full = derive(raw)
    assert ledger_calls(raw)["copy_in"] == calls and "pin" not in ledger_calls(raw)
    rows = {row["account"]: row["bytes"] for row in full["ledger"] if row["bytes"]}
    assert rows["copy_in"] == copied_bytes and "deferred" not in rows and "pin" not in rows
    assert full["zerocopy"]["cause"]["code"] == "at_call"


@pytest.mark.parametrize(
    ("owner", "category"), [("others", "other_packets"), ("target", "deferred"), ("unknown", "deferred")]
)
def test_a_softirq_for_packets_of_others_is_a_row_of_its_own(owner: str, category: str) -> None:
    assert sampled(f"memcpy skb_copy_ubufs {SOFTIRQ}", owner=owner)["category"] == category


def test_a_timer_softirq_is_not_work_for_packets_of_others() -> None:
    stack = "run_timer_softirq handle_softirqs irq_exit_rcu sysvec_apic_timer_interrupt"
    assert sampled(stack, owner="others")["category"] != "other_packets"


@pytest.mark.parametrize(
    ("stack", "account"),
    [
        (f"pskb_expand_head ip_forward ip_rcv {SOFTIRQ}", "skb_alloc"),
        (f"skb_copy_bits __pskb_pull_tail ip_rcv_core ip_rcv {SOFTIRQ}", "skb_alloc"),
        (f"skb_copy_bits tcp_packet nf_conntrack_in nf_hook_slow {SOFTIRQ}", "skb_alloc"),
        (f"skb_copy_bits __pskb_pull_tail skb_segment validate_xmit_skb {SOFTIRQ}", "silent"),
        (f"skb_copy_bits __pskb_pull_tail virtnet_start_xmit dev_hard_start_xmit {SOFTIRQ}", "silent"),
        (f"skb_copy_bits skb_segment validate_xmit_skb {SOFTIRQ}", "silent"),
    ],
)
def test_only_callers_that_copy_payload_make_a_hidden_copy(stack: str, account: str) -> None:
    assert sampled(stack)["category"] == account

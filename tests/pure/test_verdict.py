# SPDX-License-Identifier: GPL-2.0-only
"""The verdict: validity with reasons, cause of late copies, limit of goodput, the main finding."""

import copy
import io
import math
from statistics import fmean, stdev
from typing import Any

import builders
import pytest
from builders.documents import derive, typed_whole
from builders.exact import with_functions
from builders.watched import watched_record
from copyscope.ledger import machine_state as overhead
from copyscope.ledger.verdict import why_invalid
from copyscope.record.derived import Identity
from copyscope.show import first_screen, watch
from copyscope.show.evidence import observer_lines
from copyscope.show.layout import make_console
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

Record = dict[str, Any]

ONE_COPY = builders.raw_record("one_copy")


def derived(impl: str, **options: Any) -> Record:
    return derive(builders.raw_record(impl, **options))


def test_samples_and_clock_that_disagree_are_named_in_milliseconds() -> None:
    check = Identity(None, "target_time", "x", 642_900_000, 491_900_000, "ns", tolerance=0, holds=False)
    words = "samples stand for 643 ms of CPU time, the kernel's clock says 492 ms: not usable"
    assert f"identity target_time: {words}" in why_invalid(typed_whole(derived("one_copy")).raw, [check], {})


WRONG_BYTES = {"checked_bytes": 4096, "wrong_bytes": 2, "first_wrong_offset": 17}


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("bytes.0.bytes", 1, "identity sent_bytes: bytes sent by the program = bytes into the socket: 1,5"),
        ("loss.samples_stack_map_full", 400, "loss: samples_stack_map_full: 400 of"),
        ("loss.ring_dropped", 1, "loss: ring_dropped: 1 of an unknown number"),
        ("traffic.sender.errors", ["send: reset by peer"], "sender: send: reset by peer"),
        (
            "traffic.receiver.verify",
            WRONG_BYTES,
            "receiver: 2 wrong bytes of 4,096 checked, the first at offset 17",
        ),
        ("traffic.sender.zerocopy.in_flight", 3, "sender: 3 zero-copy sends were never completed"),
        ("traffic.sender.too_short_reason", "run: 3.0 ms of traffic", "too short: run: 3.0 ms of traffic"),
        ("hooks.4.state", "refused", "hook copy_out_bytes: refused: no reason given"),
        ("run.errors", ["collector: ended early"], "run: collector: ended early"),
    ],
)
def test_a_single_fault_makes_a_run_invalid(path: str, value: Any, reason: str) -> None:
    raw = builders.raw_record("zero_copy")
    owner: Any = raw
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    for step in steps:
        owner = owner[step]
    owner[last] = value
    verdict = derive(raw)["verdict"]
    assert not verdict["valid"]
    assert any(actual.startswith(reason) for actual in verdict["reasons"]), verdict["reasons"]
    assert verdict["sentence"].startswith(f"not valid: {verdict['reasons'][0]}")


def test_an_interrupted_run_is_shown_but_not_averaged() -> None:
    """Three segments of 0.3 s were complete. The run was to take 3 s."""
    full = derive(builders.raw_record("one_copy", stopped_after=3))
    verdict = full["verdict"]
    assert not verdict["valid"] and verdict["reasons"] == ["interrupted: 0.9 of 3 s measured"]
    assert verdict["sentence"].startswith("interrupted: 0.9 of 3 s measured; one_copy over ")
    assert typed_whole(full).is_partial
    for height in (24, 60):
        shown = Console(width=80, height=height, color_system=None, force_terminal=True, record=True)
        first_screen.render(typed_whole(full), shown)
        text = shown.export_text()
        assert "interrupted: 0.9 of 3 s measured" in text and "INVALID" not in text
    # A run with another error is not valid at all.
    broken = builders.raw_record("one_copy", stopped_after=3)
    broken["traffic"]["sender"]["errors"] = ["send: reset by peer"]
    assert derive(broken)["verdict"]["sentence"].startswith("not valid: interrupted: 0.9 of 3 s measured (")


def test_a_run_of_milliseconds_is_too_short() -> None:
    raw = builders.raw_record("zero_copy")
    for segment in raw["run"]["segments"]:
        segment["end_ns"] = segment["begin_ns"] + 1_000_000
    assert any(
        invalid_reason.startswith("too short: 3.0 ms with")
        for invalid_reason in derive(raw)["verdict"]["reasons"]
    )


def test_small_losses_are_recorded_and_tolerated() -> None:
    raw = builders.raw_record("one_copy")
    raw["loss"] = {"samples_stack_map_full": 1, "recursion_send_bytes": 2, "ring_dropped": 0}
    full = derive(raw)
    assert full["loss"]["samples_stack_map_full"] == {
        **{"count": 1, "of": 5650, "share": 1 / 5650, "reason": None}
    }
    assert full["loss"]["recursion_send_bytes"]["of"] > 2
    assert full["loss"]["ring_dropped"] == {"count": 0, "of": None, "share": 0.0, "reason": None}
    assert full["verdict"]["valid"]


PACKET_SOCKET = {"side": "sender", "device": "eth0", "protocol": "ETH_P_ALL", "pid": 812, "comm": "lldpd"}


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (
            {"kind": "veth"},
            "local_delivery",
            "the receiver is on the same machine (veth); this path cannot show a gain",
        ),
        ({"kind": "loopback"}, "local_delivery", "the receiver is on the same machine (loopback)"),
        ({"kind": "veth-xdp"}, "xdp_native", "native XDP"),
        ({"kind": "veth-xdp", "packet_sockets": [PACKET_SOCKET]}, "xdp_native", "native XDP"),
        (
            {"kind": "veth", "packet_sockets": [PACKET_SOCKET]},
            "local_delivery",
            "a gain, with or without a packet socket on eth0 (lldpd, pid 812)",
        ),
        (
            {
                "kind": "veth",
                "packet_sockets": [{**PACKET_SOCKET, "pid": None, "comm": None, "device": None}],
            },
            "local_delivery",
            "every device (owner not visible)",
        ),
        (
            {"kind": "veth", "packet_sockets": [{**PACKET_SOCKET, "protocol": "ETH_P_ARP"}]},
            "local_delivery",
            "on the same machine",
        ),
        ({"kind": "veth", "scatter_gather": False}, "no_offload", "likely cs-s0 has no scatter-gather"),
    ],
)
def test_the_cause_of_copied_sends_is_named(options: dict[str, Any], code: str, words: str) -> None:
    full = derived("zero_copy", **options)
    assert full["zerocopy"]["cause"]["code"] == code
    assert words in full["zerocopy"]["cause"]["sentence"]
    assert full["zerocopy"]["cause"]["sentence"] in full["verdict"]["sentence"]


def test_a_packet_socket_on_the_receivers_host_is_not_the_cause() -> None:
    """A run over physical interfaces, in which notifications report copies."""
    raw = builders.raw_record("zero_copy")
    raw["topology"] = builders.raw_record("zero_copy", kind="nics", packet_sockets=[PACKET_SOCKET])[
        "topology"
    ]
    cause = derive(raw)["zerocopy"]["cause"]
    assert cause["code"] == "packet_socket" and "stop it and run again" in cause["sentence"]
    raw["topology"]["packet_sockets"] = [{**PACKET_SOCKET, "side": "receiver"}]
    assert derive(raw)["zerocopy"]["cause"]["code"] == "unknown"


@pytest.mark.parametrize(
    ("impl", "options", "words"),
    [
        ("one_copy", {}, "one_copy over veth: the copy into the kernel takes 23 %"),
        ("two_copy", {}, "the program's gather copy takes 11 %, the copy into the kernel takes 14 %"),
        (
            "zero_copy",
            {},
            "the kernel copied the data after all, later, in softirq (skb_copy_ubufs), 19 % of all CPU time",
        ),
        (
            "zero_copy",
            {"kind": "veth-xdp"},
            "completion notices say zero-copy, but the bytes were copied on the way (skb_pp_",
        ),
        ("zero_copy", {"kind": "nics"}, "no copy on the way"),
        ("zero_copy", {"scatter_gather": False}, "the kernel copied the data after all, later, in softirq"),
        ("sendfile", {}, "no copy into the kernel: pages of a file by reference, "),
        (
            "null",
            {},
            "nothing was sent: this is the cost of the loop and the clock, 61 ns of CPU time per message",
        ),
    ],
)
def test_each_strategy_has_its_finding(impl: str, options: dict[str, Any], words: str) -> None:
    assert words in derived(impl, **options)["verdict"]["sentence"]


def test_partly_copied_sends_are_counted() -> None:
    raw = copy.deepcopy(builders.raw_record("zero_copy", kind="nics"))
    for owner in [*(s["sides"]["sender"] for s in raw["run"]["segments"]), raw["traffic"]["sender"]]:
        owner["zerocopy"] |= {"copied": 10, "bytes_copied": 10 * 65_536}
    raw["traffic"]["sender"]["zerocopy"] |= {"copied": 120, "bytes_copied": 120 * 65_536}
    assert "120 of 92,160 sends were copied after all" in derive(raw)["verdict"]["sentence"]


def test_a_large_overhead_is_mentioned_in_the_finding() -> None:
    raw = copy.deepcopy(builders.raw_record("one_copy"))
    for segment in raw["run"]["segments"]:
        if segment["phase"] == "ledger":
            for side in ("sender", "receiver"):
                segment["sides"][side]["bytes"] //= 2
    sentence = derive(raw)["verdict"]["sentence"]
    assert "watching changed goodput by at least 50 %, more than this finding" in sentence
    assert "watching" not in derived("one_copy")["verdict"]["sentence"]


@pytest.mark.parametrize(
    "low,high,word",
    [
        (0.97, 1.02, "no effect found"),
        (0.90, 1.10, "no effect found"),
        (0.874, 12.615, "too noisy to tell"),
        (0.88, 1.01, "too noisy to tell"),
        (0.99, 1.2, "too noisy to tell"),
        (0.5, 0.99, "effect seen"),
        (1.01, 3.0, "effect seen"),
    ],
)
def test_an_effect_is_named_only_if_its_interval_shows_it(low: float, high: float, word: str) -> None:
    assert overhead.describe_effect(low, high) == word


def test_a_noisy_run_has_no_finding_about_the_overhead() -> None:
    """The median is +262 %, but the interval includes no change at all."""
    raw = builders.raw_record("one_copy", blocks=6)
    speeds = iter([1, 1, 6, 6, 1, 9])
    for segment in raw["run"]["segments"]:
        if segment["phase"] == "ledger":
            segment["sides"]["receiver"]["bytes"] *= next(speeds)
    full = derive(raw)
    assert full["overhead"]["low"] <= 1 and full["overhead"]["high"] > 3
    assert "too noisy to measure the overhead (goodput " in full["verdict"]["sentence"]
    assert "watching changed goodput by" not in full["verdict"]["sentence"]


def limited(
    sender: float, receiver: float, window: float = 0.1, buffer: float = 0.1, threads: int = 1
) -> Record:
    """Return the limit of a run: `sender`, `receiver`: shares on CPU; `window`, `buffer`: shares waited."""
    raw = builders.without_task_clock(builders.raw_record("one_copy", threads=threads))
    for segment in raw["run"]["segments"]:
        for side, share in (("sender", sender), ("receiver", receiver)):
            segment["sides"][side]["process_cpu_ns"] = round(share * builders.SEGMENT_NS * threads)
    for thread in raw["traffic"]["sender"]["threads"]:
        thread["tcp_info"] = {
            "busy_time_us": 10**6,
            "rwnd_limited_us": round(window * 10**6),
            "sndbuf_limited_us": round(buffer * 10**6),
        }
    limit: Record = derive(raw)["verdict"]["limit"]
    return limit


@pytest.mark.parametrize(
    ("shares", "who", "words"),
    [
        ((0.97, 0.5), "sender", "sender 97 %, receiver 50 %"),
        ((0.5, 0.97), "receiver", "sender 50 %"),
        ((0.93, 0.96), "receiver", "receiver 96 %"),
        ((0.5, 0.4, 0.8, 0.1), "receiver", "waited 80 % of their busy time for the receiver's window"),
        ((0.5, 0.4, 0.1, 0.7), "path", "70 % for the send buffer"),
        ((0.5, 0.4, 0.1, 0.1), "unknown", "no single cause"),
        ((0.3, 0.2, 0.1, 0.1, 4), "sender", "all 2 CPUs were 100 % busy"),
    ],
)
def test_the_limit_of_goodput_is_found(shares: tuple[Any, ...], who: str, words: str) -> None:
    limit = limited(*shares)
    assert limit["who"] == who
    assert words in limit["decisive"] and limit["evidence"].endswith(limit["decisive"])


@pytest.mark.parametrize(
    ("side", "form"), [("sender", {"sender": "loop"}), ("receiver", {"receiver": "poll"})]
)
def test_a_single_thread_for_all_connections_may_be_the_limit(side: str, form: Record) -> None:
    raw = builders.without_task_clock(builders.raw_record("one_copy", threads=4))
    raw["workload"] |= form
    raw["machine"]["cpus_online"] = 8
    for segment in raw["run"]["segments"]:
        for other in ("sender", "receiver"):
            spent = round(builders.SEGMENT_NS * (0.97 if other == side else 1.2))
            segment["sides"][other]["process_cpu_ns"] = spent
    full: Record = derive(raw)
    assert full["verdict"]["limit"]["who"] == side
    assert full["sides"][side]["cpus_used"] == pytest.approx(0.97)


def test_the_limit_is_unknown_without_tcp_info() -> None:
    raw = builders.without_task_clock(builders.raw_record("one_copy"))
    for segment in raw["run"]["segments"]:
        segment["sides"]["sender"]["process_cpu_ns"] //= 3
    raw["traffic"]["sender"]["threads"].append({"tcp_info": None})
    limit = derive(raw)["verdict"]["limit"]
    assert limit["who"] == "unknown" and "reported no busy time" in limit["evidence"]


def interval_of_ratios(*ratios: float) -> tuple[float, float]:
    """Return Student's interval of three ratios, on the scale of their logarithms."""
    logs = [math.log(ratio) for ratio in ratios]
    half = 4.3027 * stdev(logs) / math.sqrt(3)
    return math.exp(fmean(logs) - half), math.exp(fmean(logs) + half)


def test_the_overhead_is_paired_by_block() -> None:
    overhead = derived("one_copy")["overhead"]
    assert overhead["ratio"] == pytest.approx(0.97, abs=1e-4)
    assert (overhead["low"], overhead["high"]) == pytest.approx(
        interval_of_ratios(0.96, 0.97, 0.98), abs=1e-4
    )
    assert overhead["level"] == 0.95
    assert overhead["phases"]["calls"]["effect"] == pytest.approx(0.10, abs=1e-4)
    assert overhead["segments"] == {"unprobed": 3, "ledger": 3}


def test_the_overhead_of_function_hooks_has_its_own_phase() -> None:
    phase = "functions"
    raw = builders.raw_record("one_copy", phases=("unprobed", "ledger", phase))
    phases = derive(with_functions(raw))["overhead"]["phases"]
    assert set(phases) == {"ledger", "calls", phase}
    assert phases[phase]["effect"] == pytest.approx(0.20, abs=1e-4)
    ends = phases[phase]["low"], phases[phase]["high"]
    assert ends == pytest.approx(interval_of_ratios(0.79, 0.80, 0.82), abs=1e-4)
    assert phases[phase]["segments"] == {"unprobed": 3, phase: 3}
    assert phases["calls"]["ratio"] is None and phases["calls"]["reason"]
    lines = " ".join(line.plain for line in observer_lines(typed_whole(derive(with_functions(raw))), 200))
    assert f"{phase}: goodput -20.0 %" in lines


def test_attached_but_idle_hooks_are_the_control_of_function_hooks() -> None:
    raw = with_functions(builders.raw_record("one_copy", phases=("unprobed", "ledger", "functions")))
    # Goodput with idle hooks equals that with counting hooks. Both are lower than without hooks.
    for segment in [s for s in raw["run"]["segments"] if s["phase"] == "functions"]:
        raw["run"]["segments"].append({**segment, "phase": "unarmed"})
    effect = derive(raw)["overhead"]["phases"]["functions"]
    assert effect["effect"] == pytest.approx(0, abs=1e-9)
    assert effect["segments"] == {"unarmed": 3, "functions": 3}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"impl": "one_copy", "blocks": 2}, "2 pairs of segments: at least 3"),
        ({"impl": "one_copy", "fixed_messages": 23}, "a fixed number of messages"),
        ({"impl": "null"}, "nothing was sent"),
    ],
)
def test_an_unknown_overhead_has_a_reason(options: dict[str, Any], reason: str) -> None:
    overhead = derived(**options)["overhead"]
    assert overhead["ratio"] is None
    assert reason in overhead["reason"]


def test_the_throughput_comes_from_the_unprobed_segments() -> None:
    full = derived("one_copy")
    assert full["throughput_gbps"]["unprobed"] == pytest.approx(30_000 * 65_536 * 8 / 0.9e9)
    assert full["throughput_gbps"]["probed"] == pytest.approx(29_100 * 65_536 * 8 / 0.9e9)
    fixed = derived("one_copy", fixed_messages=23)
    assert fixed["throughput_gbps"]["unprobed"] is None
    assert "no unprobed segment" in fixed["throughput_gbps"]["reasons"]["unprobed"]
    assert (fixed["tx_bytes"], fixed["messages"]) == (23 * 65_536, 23)


@settings(max_examples=30)
@given(st.integers(0, 120), st.sampled_from([0, 0, 0, 1, 10**6]))
def test_a_loss_of_more_than_1_percent_of_the_samples_is_invalid(lost: int, unknown: int) -> None:
    """57 lost samples are less than 1 % of all, 58 are more."""
    valid = lost <= 57 and unknown == 0
    raw = ONE_COPY | {"loss": {"samples_lost": lost, "mystery": unknown}}
    assert derive(raw)["verdict"]["valid"] is valid


@pytest.mark.parametrize(("missing", "valid"), [(6, True), (7, False)])
def test_missed_timings_are_tolerated_if_the_programs_counted_their_calls(missing: int, valid: bool) -> None:
    """A guest with a 7.x kernel missed 6 of 95 calls at sys_exit, while all bytes and calls were right."""
    raw = builders.raw_record("one_copy")
    raw["loss"]["recursion_syscall_exit"] = 6
    (row,) = (row for row in raw["calls"] if row["side"] == "sender" and row["syscall"] == "sendmsg")
    row |= {"calls": row["calls"] - missing, "timed_calls": row["calls"] - missing}
    full = derive(raw)
    assert full["loss"]["recursion_syscall_exit"]["share"] > 0
    assert full["verdict"]["valid"] is valid


@pytest.mark.parametrize(("bytes_more", "valid"), [(0, True), (1, False)])
def test_misses_of_a_byte_hook_are_tolerated_if_all_own_bytes_were_counted(
    bytes_more: int, valid: bool
) -> None:
    """A hook on a 7.x kernel missed one call of sshd. All bytes of our sender were counted."""
    raw = builders.raw_record("one_copy")
    raw["loss"]["recursion_receive_bytes"] = 1000
    received = next(row for row in raw["bytes"] if row["side"] == "receiver")
    received["bytes"] += bytes_more
    full = derive(raw)
    assert full["loss"]["recursion_receive_bytes"]["share"] > 0.001
    assert full["verdict"]["valid"] is valid


def test_a_loss_counter_of_zero_does_not_matter() -> None:
    raw = builders.raw_record("one_copy")
    raw["loss"]["watch_socket_map_full"] = 0
    assert derive(raw)["verdict"]["valid"]


def test_unreadable_counts_make_a_run_invalid() -> None:
    raw = builders.raw_record("one_copy")
    raw["loss"]["cells_unread"] = 0
    assert derive(raw)["verdict"]["valid"]
    raw["loss"]["cells_unread"] = 3
    assert derive(raw)["verdict"]["reasons"] == ["loss: cells_unread: 3 of an unknown number"]


@pytest.mark.parametrize(("count", "valid"), [(170, True), (190, False)])
def test_many_calls_of_uncounted_sockets_make_a_run_invalid(count: int, valid: bool) -> None:
    """The program made 180,000 calls. All other checks hold, so only this loss shows the fault."""
    raw = watched_record(receives=4096)
    raw["loss"]["watch_socket_map_full"] = count
    full = derive(raw)
    assert all(row["holds"] is not False for row in full["identities"])
    reasons = full["verdict"]["reasons"]
    assert full["verdict"]["valid"] is valid and len(reasons) == (not valid)
    assert all(reason.startswith("loss: watch_socket_map_full: 190 of 180,108") for reason in reasons)
    shown = io.StringIO()
    watch.render(typed_whole(full), verbose=False, console=make_console(shown))
    assert f"\nlosses        watch_socket_map_full {count} of 180,108" in shown.getvalue()
    assert ("INVALID RUN" in shown.getvalue()) is not valid

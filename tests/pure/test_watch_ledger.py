# SPDX-License-Identifier: GPL-2.0-only
"""The ledger of invented watched programs."""

import copy
import io
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from builders.documents import advise, derive, typed_whole, validate
from builders.parts import loads
from builders.watched import (
    BESIDE,
    CALLS,
    EDGE_CALLS,
    KINDS,
    MAPPED,
    SEGMENT_NS,
    SIZE,
    seen_of,
    watched_record,
)
from copyscope.ledger.derive import Window
from copyscope.record import store
from copyscope.record.moved import MeasuredSegment, subtract_volume
from copyscope.record.run import Run
from copyscope.record.segments import NO_LEDGER
from copyscope.show import live, watch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

Record = dict[str, Any]


def derived(**options: Any) -> Record:
    return derive(watched_record(**options))


def bytes_of(full: Record, account: str) -> int:
    return sum(row["bytes"] or 0 for row in full["ledger"] if row["account"] == account)


def identity(full: Record, name: str) -> Record:
    return next(row for row in full["identities"] if row["name"] == name)


@pytest.mark.parametrize("kind", KINDS)
def test_consistent_records_are_valid_and_pass_all_checks(kind: str) -> None:
    raw = watched_record(**KINDS[kind])
    before = copy.deepcopy(raw)
    assert validate(raw, raw=True) == []
    full = derive(raw)
    assert raw == before
    assert validate(full) == []
    assert [row for row in full["identities"] if row["holds"] is False] == []
    assert full["verdict"]["valid"], full["verdict"]["reasons"]
    assert store.parse(store.serialise(full).decode(), "test") == json.loads(json.dumps(full))


def test_each_send_method_has_its_account() -> None:
    sent = 3 * CALLS * SIZE
    assert (bytes_of(derived(), "copy_in"), bytes_of(derived(), "pin")) == (sent, 0)
    sendfile = derived(call="sendfile")
    assert (bytes_of(sendfile, "copy_in"), bytes_of(sendfile, "pin")) == (0, sent)
    assert bytes_of(sendfile, "deferred") == 0
    zerocopy = derived(zerocopy=True, copied=25)
    assert (bytes_of(zerocopy, "copy_in"), bytes_of(zerocopy, "pin")) == (0, sent)
    assert bytes_of(zerocopy, "deferred") == sent // 4
    assert bytes_of(derived(receives=4096), "copy_out") == 3 * CALLS * 4096
    mapping = derived(maps=True)
    assert bytes_of(mapping, "mapped") == 3 * CALLS * MAPPED
    assert bytes_of(mapping, "copy_out") == 3 * CALLS * BESIDE


def test_mapped_bytes_are_received_bytes() -> None:
    """Mapping is noticed after the first unprobed segment, so goodput of that segment is incomplete."""
    raw = watched_record(maps=True)
    full = derive(raw)
    received_bytes = [row["sides"]["target"]["bytes_received"] for row in raw["run"]["segments"]]
    assert received_bytes == [0] + 8 * [CALLS * (MAPPED + BESIDE)]
    assert full["rx_bytes"] == 8 * CALLS * (MAPPED + BESIDE)
    assert full["throughput_gbps"]["unprobed"] == full["throughput_gbps"]["probed"]
    check = identity(full, "connection_received_bytes")
    assert check["holds"] and "mapped" in check["what"]
    mapped = full["portrait"]["mapped"]
    assert (mapped["bytes"], mapped["pages"]) == (mapped["calls"] * MAPPED, mapped["calls"] * MAPPED // 4096)
    raw["connections"][0]["received_bytes"] -= raw["connections"][0]["received_bytes"] // 10
    assert identity(derive(raw), "connection_received_bytes")["holds"] is False


NO_PACKET_SOCKET: Record = {"packet_sockets": []}
FAR, NEAR = (
    {"address": address, "device": device, "local": local}
    for address, device, local in (("192.0.2.1", "eth0", False), ("127.0.0.1", "lo", True))
)


@pytest.mark.parametrize(
    ("topology", "code", "words", "absent_words"),
    [
        ({}, "packet_socket", "on eth0 (lldpd, pid 812): each packet is copied for it; stop it", "local"),
        (
            {"local_delivery": True},
            "local_delivery",
            "cannot show a gain, with or without a packet socket on eth0 (lldpd, pid 812)",
            "stop it",
        ),
        (
            {"local_delivery": True} | NO_PACKET_SOCKET,
            "local_delivery",
            "cannot show a gain",
            "packet socket",
        ),
        ({"peers": [FAR, NEAR]} | NO_PACKET_SOCKET, "local_delivery", "to 1 of its 2 peers", "packet socket"),
        ({"peers": [FAR, NEAR]}, "local_delivery", "and a packet socket on eth0", "stop it"),
        (NO_PACKET_SOCKET, "unknown", "cause not known", "stop it"),
        # An unconnected UDP socket: no device was read, so no cause is ruled out.
        (
            {"devices": [], "peers": []} | NO_PACKET_SOCKET,
            "unknown",
            "the sending device was not seen",
            "no XDP",
        ),
    ],
)
def test_the_cause_of_copied_sends_is_found_in_the_configuration(
    topology: Record, code: str, words: str, absent_words: str
) -> None:
    raw = watched_record(zerocopy=True, copied=100)
    raw["topology"] |= topology
    cause = derive(raw)["zerocopy"]["cause"]
    assert cause["code"] == code and words in cause["sentence"] and absent_words not in cause["sentence"]


def test_a_packet_socket_on_another_device_is_not_the_cause() -> None:
    raw = watched_record(zerocopy=True, copied=100)
    raw["topology"]["packet_sockets"][0]["device"] = "docker0"
    assert derive(raw)["zerocopy"]["cause"]["code"] == "unknown"


@pytest.mark.parametrize(
    ("feature", "words"),
    [("scatter_gather", "has no scatter-gather"), ("tx_checksum", "has no checksum offload")],
)
def test_a_device_without_an_offload_is_a_likely_cause(feature: str, words: str) -> None:
    raw = watched_record(zerocopy=True, copied=100)
    raw["topology"]["devices"][0]["features"][feature] = False
    cause = derive(raw)["zerocopy"]["cause"]
    assert cause["code"] == "no_offload" and f"likely eth0 {words}" in cause["sentence"]


def test_xdp_copies_silently() -> None:
    """No notification reports a copy, but samples are in the silent copy."""
    raw = watched_record(zerocopy=True)
    assert derive(raw)["zerocopy"]["cause"] is None
    row = next(row for row in raw["samples"] if row["side"] == "target")
    raw["samples"].append({**row, "symbol": "skb_pp_cow_data", "category": "silent", "kind": "account"})
    raw["topology"]["xdp"] = "native"
    full = derive(raw)
    assert full["zerocopy"]["cause"]["code"] == "xdp_native" and bytes_of(full, "silent") > 0


def test_lost_bytes_break_a_check() -> None:
    raw = watched_record()
    raw["calls"][0]["bytes"] -= (2 * EDGE_CALLS + 2) * 3 * SIZE + 1
    full = derive(raw)
    assert identity(full, "call_sent_bytes")["holds"] is False
    raw = watched_record()
    raw["connections"][0]["sent_bytes"] += 10 * SIZE
    assert identity(derive(raw), "connection_sent_bytes")["holds"] is False


def test_bytes_moved_while_hooks_attach_are_tolerated() -> None:
    raw = watched_record()
    raw["calls"][0]["bytes"] += 2 * EDGE_CALLS * 3 * SIZE
    assert identity(derive(raw), "call_sent_bytes")["holds"] is True


def test_calls_without_bytes_in_their_return_value_are_unchecked() -> None:
    raw = watched_record()
    for row in raw["volume"]:
        row["syscall"] = "io_uring"
    check = identity(derive(raw), "call_sent_bytes")
    assert check["holds"] is None and "io_uring" in check["reason"]


def test_a_program_that_moved_nothing_is_invalid() -> None:
    raw = watched_record()
    raw["volume"] = []
    for segment in raw["run"]["segments"]:
        moved = ("bytes", "bytes_sent", "bytes_received", "send_calls")
        segment["sides"]["target"] |= dict.fromkeys(moved, 0)
    verdict = derive(raw)["verdict"]
    assert not verdict["valid"]
    assert (
        verdict["reasons"][0]
        == "nothing was sent or received over TCP, MPTCP, UDP or UNIX sockets by server[4711] in 2.7 s"
    )


def test_unread_cpu_time_is_unknown() -> None:
    """Processes that exit between two readings may leave samples, but no CPU time to divide."""
    raw = watched_record()
    raw["counters"] = {"target": {}}
    for segment in raw["run"]["segments"]:
        segment["sides"]["target"]["process_cpu_ns"] = 0
    full = derive(raw)
    side = full["sides"]["target"]
    assert [side[key] for key in ("cpu_ns", "cpus_used")] == [None] * 2
    assert all("its processes used no CPU time" in reason for reason in side["reasons"].values())
    assert identity(full, "target_time")["holds"] is None
    assert all(row["cpu_ns"] is None for row in full["ledger"] if row["side"] == "target")
    assert "what its copies cost is not known: its processes used no CPU" in full["verdict"]["sentence"]
    assert full["verdict"]["limit"]["evidence"].startswith("CPU time not known")
    assert validate(full) == []


@pytest.mark.parametrize(
    ("cpus", "threads", "waited_ms", "who", "words"),
    [
        (0.97, 1, (1000, 900, 0), "target", "on CPU 97 % of the time, with one thread"),
        (0.89, 1, (1000, 900, 0), "peer", "waited 90 % of their busy time for the peer's window, 0 %"),
        (
            0.97,
            2,
            (1000, 100, 600),
            "path",
            "10 % of their busy time for the peer's window, 60 % for the send",
        ),
        (1.95, 4, (1000, 900, 0), "target", "on CPU 195 % of the time, of 2 CPUs"),
        (0.30, 1, (1000, 200, 100), "unknown", "waited 20 % of their busy time"),
        (0.30, 1, (0, 0, 0), "unknown", "30 % of the time; no long-lived connection was busy sending"),
    ],
)
def test_the_limit_of_a_watched_program_is_found(
    cpus: float, threads: int, waited_ms: tuple[int, int, int], who: str, words: str
) -> None:
    """Two CPUs. `waited_ms`: busy time, and the time spent waiting for the window and the send buffer."""
    raw = watched_record()
    raw["counters"]["target"]["task-clock"]["value"] = round(cpus * 3 * SEGMENT_NS)
    for segment in raw["run"]["segments"]:
        segment["sides"]["target"] |= {"threads": threads, "process_cpu_ns": round(cpus * SEGMENT_NS)}
    raw["connections"][0] |= dict(
        zip(("busy_ms", "rwnd_limited_ms", "sndbuf_limited_ms"), waited_ms, strict=True)
    )
    limit = derive(raw)["verdict"]["limit"]
    assert (limit["who"], words in limit["evidence"]) == (who, True), limit


def test_segments_in_which_nothing_moved_have_no_goodput() -> None:
    raw = watched_record()
    for segment in raw["run"]["segments"]:
        if segment["phase"] == "ledger":
            segment["sides"]["target"] |= dict.fromkeys(("bytes", "bytes_sent", "send_calls"), 0)
    goodput = derive(raw)["throughput_gbps"]
    assert goodput["unprobed"] > 0 and goodput["probed"] is None
    assert goodput["reasons"] == {"probed": "nothing moved in the ledger segments"}


def test_no_account_has_bytes_without_ledger_segments() -> None:
    rows = {row["account"]: row for row in derive(watched_record(phases=("unprobed",)))["ledger"]}
    assert {(row["bytes"], row["calls"]) for row in rows.values()} == {(None, None)}
    reasons = {name: row["reasons"]["bytes"] for name, row in rows.items()}
    assert {reasons.pop("gather"), reasons.pop("user_encrypt")} == {
        "copies inside the program's own memory: no hook counts them"
    }
    assert len(reasons) == 9 and set(reasons.values()) == {NO_LEDGER}


def short_command(phase: str, ended: str) -> Record:
    raw = watched_record(blocks=1, phases=(phase,))
    raw["target"] |= {"how": "command", "ended": ended}
    (segment,) = raw["run"]["segments"]
    segment["end_ns"] = segment["begin_ns"] + 20_000_000
    # The command used ten of 16 CPUs: 200 ms of CPU time in 20 ms.
    raw["machine"]["cpus_online"] = 16
    return derive(raw)


def test_a_short_command_in_one_segment_is_valid_without_times() -> None:
    full = short_command("ledger+calls", "the command ended")
    assert full["verdict"]["valid"], full["verdict"]["reasons"]
    assert bytes_of(full, "copy_in") == CALLS * SIZE
    rows = [row for row in full["ledger"] if row["side"] == "target"]
    assert all(row["cpu_ns"] is None and "ran for 20.0 ms" in row["reasons"]["cpu_ns"] for row in rows)
    assert "what its copies cost is not known: it ran for 20.0 ms" in full["verdict"]["sentence"]


@pytest.mark.parametrize(
    ("phase", "ended"), [("ledger", "the command ended"), ("ledger+calls", "stopped after --duration")]
)
def test_any_other_short_run_is_invalid(phase: str, ended: str) -> None:
    verdict = short_command(phase, ended)["verdict"]
    assert verdict["reasons"][0].startswith("too short a command: 20.0 ms with instruments, at least 50 ms")
    assert verdict["next"] == "run it once more with --whole, which counts all of a short command"


@pytest.mark.parametrize("kind", KINDS)
def test_the_report_fits_the_width_of_the_terminal(kind: str) -> None:
    full = derived(**KINDS[kind])
    full["advice"] = advise(full, None)
    for width in (60, 80, 100):
        stream = io.StringIO()
        console = Console(file=stream, width=width, color_system=None)
        watch.render(typed_whole(full), verbose=True, explain=True, console=console)
        shown = stream.getvalue()
        assert max(len(line) for line in shown.splitlines()) <= width
        assert "COPY LEDGER" in shown and "PORTRAIT" in shown and "server[4711]" in shown
        assert "WHAT THE ROWS MEAN" in shown and "rounds: tcp_sendmsg_locked()" in shown
        assert ("zero-copy: Results of its" in shown) == ("zero-copy" in kind)


def screen_of(run: Run, width: int, height: int) -> list[Text]:
    picture = live.LivePicture()
    picture.add(run, 12.0)
    return live.screen_lines(picture, width, height)


def test_the_screen_fits_a_small_terminal() -> None:
    lines = screen_of(typed_whole(derived(zerocopy=True, copied=100)), 80, 24)
    assert len(lines) <= 24 and max(len(line.plain) for line in lines) < 80
    assert any(line.plain.startswith("page pinning ") for line in lines)
    assert any(re.search(r"sends/s, .* sent, .* received$", line.plain) for line in lines)
    log_line = live.log_line(typed_whole(derived()))
    assert (
        "Gb/s" in log_line and "\n" not in log_line and "zero-copy" not in log_line and "lost" not in log_line
    )


def test_the_live_screen_shows_a_status_before_the_first_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    with live.LiveView(wanted=True, stream=stream) as view:
        view.prepare("nginx: loading")
        assert "nginx: loading" in stream.getvalue()
        view.update(typed_whole(derived()))
        view.prepare("nginx: attaching")
    output = stream.getvalue()
    assert "COPIES, THEN STAGES" in output and "nginx: attaching" not in output
    assert "copy into the kernel" in output and "copy_in" not in output


TARGET = {"how": "pid", "name": "x", "comm": "x", "cgroup": None, "netns": None, "follow": True}


def test_the_live_view_warns_while_the_machine_is_busy() -> None:
    """Another program uses one of two CPUs in blocks 2 to 4 of 12. A window has four blocks."""
    watched, window = seen_of(blocks=12), Window(TARGET, 199)
    all_segments, block_ns = list(watched.segments), 3 * SEGMENT_NS
    began, _ = loads(0, 0, own_ns=0)
    watched.loads, load, shown = [began], began, []
    for block in range(12):
        segments = all_segments[3 * block : 3 * block + 3]
        watched.segments = all_segments[: 3 * block + 3]
        first, last = segments[0], segments[-1]
        assert isinstance(first, MeasuredSegment) and isinstance(last, MeasuredSegment)
        begin, end = first.marks[1]["target"], last.marks[2]["target"]
        sides_ns = end["process_cpu_ns"] - begin["process_cpu_ns"]
        others_ns = block_ns if block in (2, 3, 4) else 0
        busy_ns = (load.busy_ns or 0) + sides_ns + others_ns
        load = replace(load, t_ns=load.t_ns + block_ns, busy_ns=busy_ns)
        window.add_load(block, replace(load, busy_ns=busy_ns - 1))  # an earlier reading in the same block
        window.add_load(block, load)
        shown.append(window.run(watched, {"event": "samples", "samples": [], "loss": {}}))
    lines = [" ".join(line.plain for line in screen_of(record, 100, 24)) for record in shown]
    warnings = [re.search(r"machine +busy: other programs used (\d+) %", line) for line in lines]
    # Each busy block among the last four adds an eighth of both CPUs.
    assert [warning and int(warning[1]) for warning in warnings] == [
        *(None, None, 17, 25, 38, 38, 25, 12, None, None, None, None)
    ]  # fmt: skip
    assert [len(screen_of(record, 80, 24)) <= 24 for record in shown] == [True] * 12
    assert "; other programs used 38 % of the CPUs" in live.log_line(shown[4])
    assert "busy" not in live.log_line(shown[0])


def test_the_live_view_derives_at_most_one_picture_a_second() -> None:
    view = live.LiveView(wanted=True, stream=io.StringIO())
    due = [view.is_due(10**12 + elapsed_ns) for elapsed_ns in range(0, 10 * 10**9, 10**8)]
    assert due[0] and sum(due) == 12  # every ninth of 100 attempts, which are 0.1 s apart
    assert not live.LiveView(wanted=False).is_due(10**12)


def test_the_window_drops_old_blocks() -> None:
    watched = seen_of(blocks=8)
    window = Window(
        TARGET,
        199,
    )
    all_segments = list(watched.segments)
    samples: Any = []
    for count in range(3, len(all_segments) + 1, 3):
        watched.segments = all_segments[:count]
        weights = {"samples": 3, "weight": 3000, "weight_squared": 3e6}
        samples = [{"side": "target", "event": "cpu-clock", "frames": [], **weights}]
        shown = window.run(watched, {"event": "samples", "samples": samples, "loss": {}})
    assert sum(row.samples for row in shown.raw.samples) == 12  # four blocks of three segments
    assert len(shown.raw.run.segments) == 12


def row_of(calls: int, size: int) -> Any:
    keys = ("zerocopy_calls", "zerocopy_bytes", "nodelay_calls", "cork_calls")
    return {
        **{"protocol": "tcp", "direction": "send", "syscall": "write", "calls": calls, "bytes": calls * size},
        **dict.fromkeys(keys, 0),
        **{"largest_bytes": size, "sizes": [[size, calls]] if calls else []},
    }


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(1, 1 << 20))
def test_differences_of_readings_add_up(first: int, more: int, size: int) -> None:
    rows = subtract_volume([row_of(first + more, size)], [row_of(first, size)])
    assert sum(row.bytes for row in rows) == more * size
    assert sum(count for row in rows for _, count in row.sizes) == more


def test_completions_without_their_hook_are_unknown() -> None:
    raw = watched_record(zerocopy=True)
    for segment in raw["run"]["segments"]:
        segment["sides"]["target"] |= {"completions": 0, "notifications": 0}
    hook = {**raw["hooks"][0], "id": "completion", "symbol": "inet_sk_error_report", "state": "attached"}
    raw["hooks"].append(hook)
    assert derive(raw)["zerocopy"]["completions"] == 0
    hook |= {"state": "missing", "reason": "no such"}
    full = derive(raw)
    assert full["zerocopy"]["completions"] is full["zerocopy"]["copied"] is None
    assert full["zerocopy"]["reason"] == "inet_sk_error_report: no such"
    assert validate(full) == []
    out = io.StringIO()
    watch.render(typed_whole(full), verbose=False, console=Console(file=out, width=100))
    assert "completions n/a: inet_sk_error_report: no such" in " ".join(out.getvalue().split())


@pytest.mark.parametrize(
    ("protocol", "call", "words"),
    [
        ("unix_stream", "write", "100 % of its bytes went through UNIX sockets"),
        ("unix_dgram", "write", "100 % of its bytes went through UNIX sockets"),
        ("mptcp", "write", "went over MPTCP, where the kernel ignores MSG_ZEROCOPY"),
        ("tcp", "splice after vmsplice", "by reference to its own memory (vmsplice), and it gets no notice"),
        ("tcp", "splice", "went out by reference to pages"),
        ("sockmap", "write", "100 % of its bytes went through sockets in a sockmap: its BPF programs"),
    ],
)
def test_the_path_of_the_bytes_is_mentioned(protocol: str, call: str, words: str) -> None:
    full = derive(watched_record(protocol=protocol, call=call, receives=4096))
    assert validate(full) == [] and full["verdict"]["valid"]
    assert words in full["verdict"]["sentence"]
    send = full["portrait"]["send"]
    assert (send["memory_share"], send["page_share"]) == (call.endswith("vmsplice"), call == "splice")


def test_a_sockmap_has_no_count_of_tcp_and_no_hooked_copies() -> None:
    """The bytes come from the calls. Checks against a second count are skipped with a reason."""
    raw = watched_record(protocol="sockmap", receives=4096)
    raw["connections"] = []
    raw["volume"] = [row for row in raw["volume"] if row["direction"] != "copy_out"]
    full = derive(raw)
    assert full["verdict"]["valid"], full["verdict"]["reasons"]
    assert bytes_of(full, "copy_in") == 3 * CALLS * SIZE and bytes_of(full, "copy_out") == 3 * CALLS * 4096
    for name in ("connection_sent_bytes", "connection_received_bytes"):
        check = identity(full, name)
        assert check["holds"] is None and "sockmap" in check["reason"]
    assert "messages through a sockmap" in identity(full, "received_split")["reason"]
    assert identity(full, "call_sent_bytes")["holds"]


def test_the_live_view_derives_only_shown_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The live view derives no interval of the cost of watching and no rows of connections."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("an interval in the live view")

    monkeypatch.setattr("copyscope.base.stats.ratio_of", refuse)
    window = Window(
        TARGET,
        199,
    )
    watched = seen_of(blocks=8)
    watched.connections = None  # type: ignore[assignment]
    shown = window.run(watched, {"event": "samples", "samples": [], "loss": {}})
    assert "Gb/s" in live.log_line(shown)
    assert screen_of(shown, 80, 24)

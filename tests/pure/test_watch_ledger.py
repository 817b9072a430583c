"""The ledger of a watched program, on invented ones whose truth is known."""

import copy
import io
import json
import re
from typing import Any

import pytest
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
from copyscope.judge import advice
from copyscope.ledger.derive import derive
from copyscope.ledger.window import Window
from copyscope.record import store
from copyscope.record.check import typed_whole
from copyscope.record.moved import subtract_volume
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
def test_is_a_record_and_every_identity_that_can_be_checked_holds(kind: str) -> None:
    raw = watched_record(**KINDS[kind])
    before = copy.deepcopy(raw)
    assert store.validate(raw, raw=True) == []
    full = derive(raw)
    assert raw == before
    assert store.validate(full) == []
    assert [row for row in full["identities"] if row["holds"] is False] == []
    assert full["verdict"]["valid"], full["verdict"]["reasons"]
    assert store.parse(store.serialise(full).decode(), "test") == json.loads(json.dumps(full))


def test_each_way_of_sending_has_its_account() -> None:
    sent = 3 * CALLS * SIZE
    assert (bytes_of(derived(), "copy_in"), bytes_of(derived(), "pin")) == (sent, 0)
    pages = derived(call="sendfile")
    assert (bytes_of(pages, "copy_in"), bytes_of(pages, "pin")) == (0, sent)
    assert bytes_of(pages, "deferred") == 0
    zerocopy = derived(zerocopy=True, copied=25)
    assert (bytes_of(zerocopy, "copy_in"), bytes_of(zerocopy, "pin")) == (0, sent)
    assert bytes_of(zerocopy, "deferred") == sent // 4
    assert bytes_of(derived(receives=4096), "copy_out") == 3 * CALLS * 4096
    mapping = derived(maps=True)
    assert bytes_of(mapping, "mapped") == 3 * CALLS * MAPPED
    assert bytes_of(mapping, "copy_out") == 3 * CALLS * BESIDE


def test_what_is_mapped_is_received_and_tcp_says_so_too() -> None:
    """The first unprobed segment is over before anybody knows that it maps: its goodput is not whole."""
    raw = watched_record(maps=True)
    full = derive(raw)
    bytes_found = [row["sides"]["target"]["bytes_received"] for row in raw["run"]["segments"]]
    assert bytes_found == [0] + 8 * [CALLS * (MAPPED + BESIDE)]
    assert full["rx_bytes"] == 8 * CALLS * (MAPPED + BESIDE)
    assert full["throughput_gbps"]["unprobed"] == full["throughput_gbps"]["probed"]
    found = identity(full, "connection_received_bytes")
    assert found["holds"] and "mapped" in found["what"]
    whole = full["portrait"]["mapped"]
    assert (whole["bytes"], whole["pages"]) == (whole["calls"] * MAPPED, whole["calls"] * MAPPED // 4096)
    raw["connections"][0]["received_bytes"] -= raw["connections"][0]["received_bytes"] // 10
    assert identity(derive(raw), "connection_received_bytes")["holds"] is False


NO_TAP: Record = {"packet_sockets": []}
FAR, NEAR = (
    {"address": address, "device": device, "local": local}
    for address, device, local in (("192.0.2.1", "eth0", False), ("127.0.0.1", "lo", True))
)


@pytest.mark.parametrize(
    ("topology", "code", "words", "not_said"),
    [
        ({}, "packet_socket", "on eth0 (lldpd, pid 812): each packet is copied for it; stop it", "local"),
        (
            {"local_delivery": True},
            "local_delivery",
            "cannot show a gain, with or without a packet socket on eth0 (lldpd, pid 812)",
            "stop it",
        ),
        ({"local_delivery": True} | NO_TAP, "local_delivery", "cannot show a gain", "packet socket"),
        ({"peers": [FAR, NEAR]} | NO_TAP, "local_delivery", "to 1 of its 2 peers", "packet socket"),
        ({"peers": [FAR, NEAR]}, "local_delivery", "and a packet socket on eth0", "stop it"),
        (NO_TAP, "unknown", "cause not known", "stop it"),
        # As of a UDP socket that is not connected: nothing was looked at, so nothing was ruled out.
        ({"devices": [], "peers": []} | NO_TAP, "unknown", "its device was not seen", "no XDP"),
    ],
)
def test_who_made_it_a_copy_is_named(topology: Record, code: str, words: str, not_said: str) -> None:
    raw = watched_record(zerocopy=True, copied=100)
    raw["topology"] |= topology
    cause = derive(raw)["zerocopy"]["cause"]
    assert cause["code"] == code and words in cause["sentence"] and not_said not in cause["sentence"]


def test_a_packet_socket_on_another_device_is_not_to_blame() -> None:
    raw = watched_record(zerocopy=True, copied=100)
    raw["topology"]["packet_sockets"][0]["device"] = "docker0"
    assert derive(raw)["zerocopy"]["cause"]["code"] == "unknown"


@pytest.mark.parametrize(
    ("feature", "words"),
    [("scatter_gather", "has no scatter-gather"), ("tx_checksum", "has no checksum offload")],
)
def test_a_device_that_lacks_an_offload_is_likely_to_make_the_kernel_copy(feature: str, words: str) -> None:
    raw = watched_record(zerocopy=True, copied=100)
    raw["topology"]["devices"][0]["features"][feature] = False
    cause = derive(raw)["zerocopy"]["cause"]
    assert cause["code"] == "no_offload" and f"likely eth0 {words}" in cause["sentence"]


def test_xdp_copies_without_saying_so() -> None:
    """No completion says copied, but samples fell into the copy."""
    raw = watched_record(zerocopy=True)
    assert derive(raw)["zerocopy"]["cause"] is None
    row = next(row for row in raw["samples"] if row["side"] == "target")
    raw["samples"].append({**row, "symbol": "skb_pp_cow_data", "category": "silent", "kind": "account"})
    raw["topology"]["xdp"] = "native"
    full = derive(raw)
    assert full["zerocopy"]["cause"]["code"] == "xdp_native" and bytes_of(full, "silent") > 0


def test_a_lost_byte_breaks_an_identity() -> None:
    raw = watched_record()
    raw["calls"][0]["bytes"] -= (2 * EDGE_CALLS + 2) * 3 * SIZE + 1
    full = derive(raw)
    assert identity(full, "call_sent_bytes")["holds"] is False
    raw = watched_record()
    raw["connections"][0]["sent_bytes"] += 10 * SIZE
    assert identity(derive(raw), "connection_sent_bytes")["holds"] is False


def test_what_moves_while_hooks_come_and_go_is_the_tolerance() -> None:
    raw = watched_record()
    raw["calls"][0]["bytes"] += 2 * EDGE_CALLS * 3 * SIZE
    assert identity(derive(raw), "call_sent_bytes")["holds"] is True


def test_calls_that_return_no_bytes_are_not_compared() -> None:
    raw = watched_record()
    for row in raw["volume"]:
        row["syscall"] = "io_uring"
    found = identity(derive(raw), "call_sent_bytes")
    assert found["holds"] is None and "io_uring" in found["reason"]


def test_silence_is_said() -> None:
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


def test_a_time_that_nobody_read_is_unknown_and_not_nothing() -> None:
    """Processes that end between two looks leave samples, perhaps, and no CPU time to divide."""
    raw = watched_record()
    raw["counters"] = {"target": {}}
    for segment in raw["run"]["segments"]:
        segment["sides"]["target"]["process_cpu_ns"] = 0
    made = derive(raw)
    side = made["sides"]["target"]
    assert [side[key] for key in ("cpu_ns", "cpus_used")] == [None] * 2
    assert all("its processes used no CPU time" in why for why in side["reasons"].values())
    assert identity(made, "target_time")["holds"] is None
    assert all(row["cpu_ns"] is None for row in made["ledger"] if row["side"] == "target")
    assert "what its copies cost is not known: its processes used no CPU" in made["verdict"]["sentence"]
    assert made["verdict"]["limit"]["evidence"].startswith("CPU time not known")
    assert store.validate(made) == []


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
        (0.30, 1, (0, 0, 0), "unknown", "30 % of the time; no connection that lasted was busy sending"),
    ],
)
def test_who_limits_it_is_named(
    cpus: float, threads: int, waited_ms: tuple[int, int, int], who: str, words: str
) -> None:
    """Of 0.9 s in the ledger's segments, on two CPUs; busy, waiting for the window, for the send buffer."""
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


def test_without_segments_of_the_ledger_no_account_has_bytes() -> None:
    rows = {row["account"]: row for row in derive(watched_record(phases=("unprobed",)))["ledger"]}
    assert {(row["bytes"], row["calls"]) for row in rows.values()} == {(None, None)}
    why = {name: row["reasons"]["bytes"] for name, row in rows.items()}
    assert {why.pop("gather"), why.pop("user_encrypt")} == {
        "in the program's own memory: no hook counts what it copies there"
    }
    assert len(why) == 9 and set(why.values()) == {NO_LEDGER}


def short_command(phase: str, ended: str) -> Record:
    raw = watched_record(blocks=1, phases=(phase,))
    raw["target"] |= {"how": "command", "ended": ended}
    (segment,) = raw["run"]["segments"]
    segment["end_ns"] = segment["begin_ns"] + 20_000_000
    # It ran on many CPUs: 200 ms of CPU time in 20 ms.
    raw["machine"]["cpus_online"] = 16
    return derive(raw)


def test_a_short_command_that_was_counted_whole_is_valid_without_times() -> None:
    made = short_command("ledger+calls", "the command ended")
    assert made["verdict"]["valid"], made["verdict"]["reasons"]
    assert bytes_of(made, "copy_in") == CALLS * SIZE
    rows = [row for row in made["ledger"] if row["side"] == "target"]
    assert all(row["cpu_ns"] is None and "ran for 20.0 ms" in row["reasons"]["cpu_ns"] for row in rows)
    assert "what its copies cost is not known: it ran for 20.0 ms" in made["verdict"]["sentence"]


@pytest.mark.parametrize(
    ("phase", "ended"), [("ledger", "the command ended"), ("ledger+calls", "stopped after --duration")]
)
def test_any_other_short_run_is_not(phase: str, ended: str) -> None:
    verdict = short_command(phase, ended)["verdict"]
    assert verdict["reasons"][0].startswith("too short a command: 20.0 ms with instruments, at least 50 ms")
    assert verdict["next"] == "run it once more with --whole: it counts all of a short command"


@pytest.mark.parametrize("kind", KINDS)
def test_the_report_fits(kind: str) -> None:
    full = derived(**KINDS[kind])
    full["advice"] = advice.advise(full, None)
    for width in (60, 80, 100):
        stream = io.StringIO()
        console = Console(file=stream, width=width, color_system=None)
        watch.render(typed_whole(full), verbose=True, explain=True, console=console)
        shown = stream.getvalue()
        assert max(len(line) for line in shown.splitlines()) <= width
        assert "COPY LEDGER" in shown and "PORTRAIT" in shown and "server[4711]" in shown
        assert "WHAT THE ROWS MEAN" in shown and "rounds: tcp_sendmsg_locked()" in shown
        assert ("zero-copy: What became of its" in shown) == ("zero-copy" in kind)


def screen_of(record: Record, width: int, height: int) -> list[Text]:
    shown = live.Shown()
    shown.add(typed_whole(record), 12.0)
    return live.screen_of(shown, width, height)


def test_the_screen_fits_a_small_terminal() -> None:
    lines = screen_of(derived(zerocopy=True, copied=100), 80, 24)
    assert len(lines) <= 24 and max(len(line.plain) for line in lines) < 80
    assert any(line.plain.startswith("page pinning ") for line in lines)
    assert any(re.search(r"sends/s, .* sent, .* received$", line.plain) for line in lines)
    told = live.line_of(typed_whole(derived()))
    assert "Gb/s" in told and "\n" not in told and "zero-copy" not in told and "lost" not in told


def test_the_screen_says_what_is_done_before_there_is_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    with live.LiveView(wanted=True, stream=stream) as view:
        view.prepare("nginx: loading")
        assert "nginx: loading" in stream.getvalue()
        view.update(typed_whole(derived()))
        view.prepare("nginx: attaching")
    said = stream.getvalue()
    assert "COPIES, THEN STAGES" in said and "nginx: attaching" not in said
    assert "copy into the kernel" in said and "copy_in" not in said


TARGET = {"how": "pid", "name": "x", "comm": "x", "cgroup": None, "netns": None, "follow": True}


def test_the_live_view_says_that_the_machine_is_busy_while_it_is() -> None:
    """Somebody takes one CPU of two for two of three blocks of a window; then nobody does any more."""
    seen, window = seen_of(blocks=12), Window(TARGET, 199)
    every, block_ns = list(seen.segments), 3 * SEGMENT_NS
    began, _ = loads(0, 0, own_ns=0)
    seen.loads, load, shown = [began], began, []
    for block in range(12):
        segments = every[3 * block : 3 * block + 3]
        seen.segments = every[: 3 * block + 3]
        begin, end = segments[0]["marks"][1]["target"], segments[-1]["marks"][2]["target"]
        sides_ns = end["process_cpu_ns"] - begin["process_cpu_ns"]
        others_ns = block_ns if block in (2, 3, 4) else 0
        load = {**load, "t_ns": load["t_ns"] + block_ns, "busy_ns": load["busy_ns"] + sides_ns + others_ns}
        window.add_load(block, {**load, "busy_ns": load["busy_ns"] - 1})  # after its first segments
        window.add_load(block, load)
        shown.append(window.record(seen, {"samples": [], "loss": {}}))
    lines = [" ".join(line.plain for line in screen_of(record, 100, 24)) for record in shown]
    said = [re.search(r"machine +busy: others took (\d+) %", line) for line in lines]
    # Of the last four blocks, as many of which as were busy: an eighth of both CPUs each.
    assert [found and int(found[1]) for found in said] == [
        *(None, None, 17, 25, 38, 38, 25, 12, None, None, None, None)
    ]  # fmt: skip
    assert [len(screen_of(record, 80, 24)) <= 24 for record in shown] == [True] * 12
    assert "; busy: others took 38 %" in live.line_of(typed_whole(shown[4]))
    assert "busy" not in live.line_of(typed_whole(shown[0]))


def test_the_live_view_works_out_a_picture_a_second_at_most() -> None:
    view = live.LiveView(wanted=True, stream=io.StringIO())
    due = [view.is_due(10**12 + at) for at in range(0, 10 * 10**9, 10**8)]
    assert due[0] and sum(due) == 12  # of a hundred, a tenth of a second apart, each ninth
    assert not live.LiveView(wanted=False).is_due(10**12)


def test_the_window_forgets_what_is_old() -> None:
    seen = seen_of(blocks=8)
    window = Window(
        TARGET,
        199,
    )
    every = list(seen.segments)
    samples: list[Record] = []
    for upto in range(3, len(every) + 1, 3):
        seen.segments = every[:upto]
        taken = {"samples": 3, "weight": 3000, "weight_squared": 3e6}
        samples = [{"side": "target", "event": "cpu-clock", "frames": [], **taken}]
        shown = window.record(seen, {"samples": samples, "loss": {}})
    assert sum(row["samples"] for row in shown["samples"]) == 12  # four blocks of three segments
    assert len(shown["run"]["segments"]) == 12


def row_of(calls: int, size: int) -> Record:
    keys = ("zerocopy_calls", "zerocopy_bytes", "nodelay_calls", "cork_calls")
    return {
        **{"protocol": "tcp", "direction": "send", "syscall": "write", "calls": calls, "bytes": calls * size},
        **dict.fromkeys(keys, 0),
        **{"largest_bytes": size, "sizes": [[size, calls]] if calls else []},
    }


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(1, 1 << 20))
def test_differences_of_readings_add_up(first: int, more: int, size: int) -> None:
    rows = subtract_volume([row_of(first + more, size)], [row_of(first, size)])
    assert sum(row["bytes"] for row in rows) == more * size
    assert sum(count for row in rows for _, count in row["sizes"]) == more


def test_completions_that_nobody_looked_for_are_unknown_and_not_none() -> None:
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
    assert store.validate(full) == []
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
        ("tcp", "splice between sockets", "of its bytes it spliced from socket to socket, by reference"),
        ("sockmap", "write", "100 % of its bytes went through sockets in a sockmap: its BPF programs"),
    ],
)
def test_the_way_of_its_bytes_is_named(protocol: str, call: str, words: str) -> None:
    full = derive(watched_record(protocol=protocol, call=call, receives=4096))
    assert store.validate(full) == [] and full["verdict"]["valid"]
    assert words in full["verdict"]["sentence"]
    send = full["portrait"]["send"]
    assert (send["memory_share"], send["page_share"]) == (call.endswith("vmsplice"), call == "splice")
    assert send["socket_share"] == (call == "splice between sockets")


def test_a_sockmap_has_neither_a_count_of_tcp_nor_a_hook_at_its_copies() -> None:
    """Its bytes are those of the calls; what cannot be compared says why."""
    raw = watched_record(protocol="sockmap", receives=4096)
    raw["connections"] = []
    raw["volume"] = [row for row in raw["volume"] if row["direction"] != "copy_out"]
    full = derive(raw)
    assert full["verdict"]["valid"], full["verdict"]["reasons"]
    assert bytes_of(full, "copy_in") == 3 * CALLS * SIZE and bytes_of(full, "copy_out") == 3 * CALLS * 4096
    for name in ("connection_sent_bytes", "connection_received_bytes"):
        found = identity(full, name)
        assert found["holds"] is None and "sockmap" in found["reason"]
    assert "messages through a sockmap" in identity(full, "received_split")["reason"]
    assert identity(full, "call_sent_bytes")["holds"]


def test_the_live_view_works_out_nothing_that_it_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither intervals of what watching cost nor rows of thousands of connections, each second."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("an interval in the live view")

    monkeypatch.setattr("copyscope.stats.ratio_of", refuse)
    window = Window(
        TARGET,
        199,
    )
    seen = seen_of(blocks=8)
    seen.connections = None  # type: ignore[assignment]
    shown = window.record(seen, {"samples": [], "loss": {}})
    assert "Gb/s" in live.line_of(typed_whole(shown))
    assert screen_of(shown, 80, 24)

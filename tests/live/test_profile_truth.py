# SPDX-License-Identifier: GPL-2.0-only
"""The ledger of known traffic is exact, to the call and to the byte."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from profiling import (
    SHARED_MESSAGES,
    SHARED_SIZE,
    SLOW,
    broken_identities,
    in_all,
    is_root,
    record_of,
    recorded,
)

pytestmark = [pytest.mark.live, pytest.mark.skipif(not is_root(), reason="needs root to load BPF")]

Record = dict[str, Any]

SIZE = 40_000
MESSAGES = 23


COPIES = {"gather", "copy_in", "pin", "deferred", "silent", "completion"}


@dataclass(frozen=True)
class Way:
    """Accounts and system calls that each message of a strategy passes."""

    accounts: tuple[str, ...]  # accounts, each of which has all bytes once
    calls: tuple[tuple[str, int], ...]
    sampled: str | None = None  # an account that certainly has samples
    to_relay: int | None = None  # copies of each byte when a relay receives it (None: not a relay)


WAYS = {
    "per_field": Way(("copy_in",), (("sendto", 8),), "copy_in"),
    "two_copy": Way(("gather", "copy_in"), (("sendto", 1),), "copy_in"),
    "one_copy": Way(("copy_in",), (("sendmsg", 1),), "copy_in"),
    "zero_copy": Way(("pin", "deferred"), (("sendmsg", 1),), "deferred"),
    "sendfile": Way(("pin",), (("sendfile", 1),)),
    "vmsplice": Way(("pin",), (("splice", 1), ("vmsplice", 1))),
    # The number of calls depends on the pieces that arrive.
    "relay_copy": Way(("copy_in",), (), "copy_in", to_relay=1),
    "relay_splice": Way(("pin",), (), to_relay=0),
    "uring_send": Way(("copy_in",), (), "copy_in"),
    "uring_zc": Way(("pin", "deferred"), (), "deferred"),
    "sendfile --via splice": Way(("pin",), (("splice", 2),)),
    "one_copy --call writev": Way(("copy_in",), (("writev", 1),), "copy_in"),
    "per_field --batch 3": Way(("copy_in",), (("sendmmsg", 3),), "copy_in"),
}
STRATEGIES = [words for words in WAYS if "--" not in words]
# Each strategy runs on veth and loopback, each variant on loopback. On veth-xdp, zero-copy causes hidden
# copies.
RUNS = [
    *((words, path) for path in ("veth", "loopback") for words in STRATEGIES),
    *((words, "loopback") for words in WAYS if words not in STRATEGIES),
    *((words, "veth-xdp") for words in ("one_copy", "zero_copy")),
]
# `make test` runs each strategy on veth; on loopback only zero_copy and the variants.
LESS_OFTEN = [(words, "loopback") for words in STRATEGIES if words != "zero_copy"]
each_run = pytest.mark.parametrize(
    ("words", "path"),
    [in_all(*run) if run in LESS_OFTEN else run for run in RUNS],
    ids=["-".join(run) for run in RUNS],
)


def way_of(words: str, path: str) -> Way:
    if (words, path) == ("zero_copy", "veth-xdp"):
        return Way(("pin", "silent"), WAYS[words].calls, "silent")
    return WAYS[words]


def not_checked(way: Way) -> set[str]:
    """Return accounts not to check: in a guest, slow copies of headers may count as hidden copies."""
    return {"silent"} - set(way.accounts) if SLOW > 1 else set()


def hook(record: Record, name: str) -> Record:
    side = "sender" if name == "send_bytes" else "receiver"
    rows_of_hooks: list[Record] = record["bytes"]
    return next(row for row in rows_of_hooks if row["hook"] == name and row["side"] == side)


def rows(record: Record, account: str) -> list[Record]:
    return [row for row in record["ledger"] if row["account"] == account]


def bytes_of(record: Record, account: str) -> int:
    return sum(row["bytes"] or 0 for row in rows(record, account))


def bytes_on_side(record: Record, account: str, side: str) -> int:
    return sum(row["bytes"] or 0 for row in rows(record, account) if row["side"] == side)


def stretched_duration(duration_s: float) -> str:
    """Return a duration that is longer in a guest, so that a stage with a tenth of the time gets samples."""
    return f"{duration_s * SLOW:g}"


def test_sender_and_receiver_run_on_the_cpus_in_the_record() -> None:
    """The programs report the CPUs of their threads. The kernel reports which CPUs share a core."""
    record = recorded("one_copy", "veth").record
    sides = ("sender", "receiver")
    reported = {side: record["traffic"][side]["options"]["cpus"] for side in sides}
    placed = record["placement"]
    assert reported == {side: [thread["cpu"] for thread in placed[side]] for side in sides}
    assert reported == {side: record["sides"][side]["cpus"] for side in sides}
    for thread in (*placed["sender"], *placed["receiver"]):
        siblings = Path(f"/sys/devices/system/cpu/cpu{thread['cpu']}/topology/thread_siblings_list")
        assert thread["core_cpus"] == siblings.read_text().strip()
    apart = reported["sender"] != reported["receiver"] or len(os.sched_getaffinity(0)) == 1
    assert apart and placed["sentence"].startswith("sender ")


@each_run
def test_sent_bytes_and_calls_are_counted_exactly(words: str, path: str) -> None:
    record, way = recorded(words, path).record, way_of(words, path)
    assert broken_identities(record) == []
    messages, total = SHARED_MESSAGES, SHARED_MESSAGES * SHARED_SIZE
    counted = {name: bytes_of(record, name) for name in COPIES - not_checked(way) if bytes_of(record, name)}
    assert counted == dict.fromkeys(way.accounts, total)
    copied_out = {side: bytes_on_side(record, "copy_out", side) for side in ("sender", "receiver")}
    assert copied_out == {"sender": total * (way.to_relay or 0), "receiver": total}
    assert hook(record, "receive_bytes")["bytes"] == total
    tcp_hook, is_zero_copy = (
        hook(record, "send_bytes"),
        "deferred" in way.accounts or "silent" in way.accounts,
    )
    if "uring" in words:
        # The socket may accept a request in parts. Its completion is counted once, and tells if it was
        # zero-copy.
        ring_completions = next(
            row for row in record["bytes"] if row["hook"] == "uring_bytes" and row["side"] == "sender"
        )
        assert (ring_completions["calls"], ring_completions["bytes"]) == (messages, total)
        assert ring_completions["zerocopy_bytes"] == (total if is_zero_copy else 0)
        ring_calls = next(row for row in record["calls"] if row["syscall"] == "io_uring")
        assert ring_calls["calls"] == record["traffic"]["sender"]["send_syscalls"]["io_uring"] >= messages
    else:
        assert tcp_hook["bytes"] == total
        assert tcp_hook["zerocopy_bytes"] == (total if is_zero_copy else 0)
        assert tcp_hook["spliced_bytes"] == (total if way.accounts == ("pin",) else 0)
        timed = {row["syscall"]: row["calls"] for row in record["calls"] if row["side"] == "sender"}
        assert {name: timed[name] for name, _ in way.calls} == {
            name: messages * calls_per_message for name, calls_per_message in way.calls
        }
    if way.to_relay is not None:
        relay_input = record["traffic"]["sender"]["taken"]
        assert (relay_input["bytes"], relay_input["spliced_bytes"]) == (total, total * (not way.to_relay))
        relay_bytes = {row["hook"]: row["bytes"] for row in record["bytes"] if row["side"] == "sender"}
        assert relay_bytes["receive_bytes"] == relay_bytes["copy_out_bytes"] == total * way.to_relay
    life = record["zerocopy"]
    if not is_zero_copy:
        assert life is None
        return
    assert life["sends"] == life["completions"] == messages
    assert life["copied"] == (0 if "silent" in way.accounts else messages)
    assert path == "veth-xdp" or life["cause"]["code"] == "local_delivery"


@each_run
def test_time_of_each_strategy_is_in_its_account_and_on_its_screen(words: str, path: str) -> None:
    record, screen = recorded(words, path).record, recorded(words, path).screen
    way, strategy = way_of(words, path), words.split(maxsplit=1)[0]
    assert record["verdict"]["reasons"] == [] and record["verdict"]["valid"]
    for side in ("sender", "receiver"):
        parts = [row["cpu_ns"] or 0 for row in (*record["ledger"], *record["stages"]) if row["side"] == side]
        spent_ns = record["sides"][side]["cpu_ns"]
        assert sum(parts) >= spent_ns - len(parts)
        # The timed gather copy may exceed the sampled time in user mode, within the interval that the check
        # `sender_rows` of this valid run allows.
        assert "gather" in way.accounts or sum(parts) <= spent_ns + len(parts)
    # The CPU time by the instruments agrees with the CPU time that the process reports. Only the former may
    # include time that the hypervisor gave to others.
    used_ns = sum(segment["sides"]["sender"]["process_cpu_ns"] for segment in record["run"]["segments"])
    tolerance_ns = used_ns / 4 + (record["machine_state"]["steal_ns"] or 0)
    assert record["sides"]["sender"]["cpu_ns"] == pytest.approx(used_ns, abs=tolerance_ns)
    if way.sampled is not None:
        assert any(row["samples"] for row in rows(record, way.sampled))
    if strategy == "two_copy":
        assert rows(record, "gather")[0]["cpu_ns"] > 0
    assert strategy.replace("_", "-") in screen.replace("_", "-") and path in screen
    assert max(len(line) for line in screen.splitlines()) <= 100 and "\x1b" not in screen


@pytest.mark.parametrize(
    ("impl", "kind", "issue"),
    [
        pytest.param("uring_zc", "loopback", "inline", marks=pytest.mark.all),
        ("uring_zc", "veth", "async"),
        pytest.param("uring_zc", "loopback", "sqpoll", marks=pytest.mark.all),
    ],
)
def test_send_zc_over_a_local_path_is_copied_late(impl: str, kind: str, issue: str) -> None:
    options = ("--topology", kind, "--issue", issue, "--duration", stretched_duration(1))
    record = record_of("--impl", impl, *options)
    assert broken_identities(record) == []
    zerocopy = record["zerocopy"]
    assert zerocopy["copied"] == zerocopy["sends"] == zerocopy["completions"] > 100
    assert bytes_of(record, "deferred") == bytes_of(record, "pin") > 0
    assert bytes_of(record, "copy_in") == bytes_of(record, "silent") == 0
    # CPU time of io_uring workers belongs to the process, not to the thread that submitted the request.
    worked_ns = sum(
        segment["sides"]["sender"]["io_uring"]["worker_cpu_ns"] for segment in record["run"]["segments"]
    )
    spent_ns = sum(segment["sides"]["sender"]["process_cpu_ns"] for segment in record["run"]["segments"])
    assert worked_ns < spent_ns / 50 if issue == "inline" else spent_ns / 2 < worked_ns < spent_ns
    # perf counts workers, too. Its clock excludes the latency of wake-ups, 10 to 20 % of the process's clock.
    ledger_ns = sum(
        segment["sides"]["sender"]["process_cpu_ns"]
        for segment in record["run"]["segments"]
        if segment["phase"] == "ledger"
    )
    assert record["sides"]["sender"]["cpu_ns"] > 0.65 * ledger_ns


@pytest.mark.parametrize(
    ("receiver", "kind"),
    [("recvmsg", "veth"), ("trunc", "loopback"), ("splice", "loopback"), ("multishot", "veth")],
)
def test_bytes_that_each_receiver_copies_are_counted(receiver: str, kind: str) -> None:
    options = ("--messages", str(MESSAGES), "--size", "64K", "--topology", kind)
    record = record_of("--impl", "one_copy", "--receiver", receiver, *options, check=None, lossless=True)
    assert broken_identities(record) == []
    sent, report = MESSAGES * 65536, record["traffic"]["receiver"]
    assert report["bytes"] == sent
    # splice(2) does not pass the hooks of receive calls.
    assert hook(record, "receive_bytes")["bytes"] == (0 if receiver == "splice" else sent)
    assert hook(record, "copy_out_bytes")["bytes"] == (0 if receiver in ("trunc", "splice") else sent)
    assert report["truncated_bytes"] == (sent if receiver == "trunc" else 0)
    assert (report["spliced"] or {}).get("bytes", 0) == (sent if receiver == "splice" else 0)


def test_pages_of_a_zero_copy_sender_are_mapped() -> None:
    """An MTU of 4148 less 52 bytes of headers is a page.

    A full window splits packets, so few bytes stay in flight.
    """
    options = (
        "--mtu",
        "4148",
        "--fields",
        "1",
        "--sndbuf",
        "64K",
        "--duration",
        stretched_duration(0.6),
        "--frequency",
        "1999",
    )
    record = record_of("--impl", "zero_copy", "--receiver", "map", *options, "--touch-received")
    assert broken_identities(record) == []
    report = record["traffic"]["receiver"]
    assert report["mapped"]["bytes"] == report["mapped"]["pages"] * 4096 > 0.99 * report["bytes"]
    assert bytes_of(record, "mapped") > 0.99 * (bytes_of(record, "mapped") + bytes_of(record, "copy_out"))
    # The kernel's hook counts the remaining bytes, which are copied.
    assert hook(record, "copy_out_bytes")["bytes"] < 0.01 * report["bytes"]
    assert any(row["samples"] for row in rows(record, "mapped"))


@pytest.mark.parametrize(
    ("impl", "more"), [("zero_copy", ()), pytest.param("sendfile", ("--file", "/tmp"), marks=pytest.mark.all)]
)
def test_one_thread_for_four_connections_is_counted_to_the_byte(impl: str, more: tuple[str, ...]) -> None:
    form = ("--sender", "loop", "--receiver", "poll", "--coalesce", "20", "--threads", "4", *more)
    options = ("--messages", str(MESSAGES), "--size", str(SIZE), *form)
    record = record_of("--impl", impl, *options, check=None, lossless=True)
    assert broken_identities(record) == []
    sent = hook(record, "send_bytes")
    assert (sent["calls"], sent["bytes"]) == (4 * MESSAGES, 4 * MESSAGES * SIZE)
    assert hook(record, "receive_bytes")["bytes"] == 4 * MESSAGES * SIZE
    for side in ("sender", "receiver"):
        threads = record["traffic"][side]["threads"]
        assert [thread["bytes"] for thread in threads] == [MESSAGES * SIZE] * 4
        assert [thread["cpu_ns"] is None for thread in threads] == [False, True, True, True]
    workload = record["workload"]
    assert (workload["sender"], workload["receiver"], workload["coalesce_us"]) == ("loop", "poll", 20)
    assert workload["file"] == ("/tmp" if more else None)


@pytest.mark.all
@pytest.mark.parametrize(
    ("impl", "threads"),
    [
        ("one_copy", "4"),
        ("one_copy", "1"),
        ("two_copy", "4"),
        ("null", "1"),
    ],
)
def test_identities_of_a_run_hold(impl: str, threads: str) -> None:
    record = record_of("--impl", impl, "--threads", threads, "--size", "16K", "--duration", "1")
    assert broken_identities(record) == []
    if impl != "null":
        assert bytes_of(record, "copy_in") == bytes_of(record, "copy_out") > 0
    if impl == "two_copy":
        assert rows(record, "gather")[0]["cpu_ns"] > 0


@pytest.mark.all
def test_touched_and_verified_bytes_arrive_unchanged() -> None:
    record = record_of(
        "--impl", "zerocopy", "--size", "8K", "--working-set", "64", "--verify", "--touch", "--duration", "1"
    )
    verify = record["traffic"]["receiver"]["verify"]
    assert verify["wrong_bytes"] == 0 and verify["checked_bytes"] >= record["rx_bytes"] > 1 << 24

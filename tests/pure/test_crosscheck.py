# SPDX-License-Identifier: GPL-2.0-only
"""Comparison with other tools: their output is read, and counts and times agree within limits."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import peer
import pytest
from agreement import Observation, compare, ours
from builders import raw_record
from builders.exact import with_functions
from copyscope.base.errors import RunError
from copyscope.base.programs import LimitError
from peer import Peer, Watched
from peers import PEERS, Bpftrace, Funclatency, PerfTrace, Syscount, kernel_stacks

DATA = Path(__file__).parent / "data" / "crosscheck"


def watched(directory: Path = DATA) -> Watched:
    return Watched({"sender": 10, "receiver": 11}, directory)


@pytest.mark.parametrize(
    "error",
    [
        LimitError("perf: did not end within 60 s"),
        FileNotFoundError(2, "No such file or directory", "trace.txt"),
        ValueError("not a number"),
    ],
)
def test_unreadable_output_of_a_tool_is_an_error_of_that_tool(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Peer):
        name = "broken"

        def read(self, _watched: Watched, _output: str) -> dict[str, float]:
            raise error

    @contextmanager
    def running(*_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(poll=lambda: None, send_signal=lambda _: None, wait=lambda _: 0)

    monkeypatch.setattr(peer, "_running", running)
    monkeypatch.setattr(peer, "_wait_attached", lambda *_: None)
    with (
        pytest.raises(RunError, match="broken: its output cannot be read"),
        peer.attached(Broken(), {}),
    ):
        pass


def test_syscount_reports_only_sends() -> None:
    text = (DATA / "syscount.txt").read_text(encoding="utf-8")
    assert Syscount().read(watched(), text) == {"send_calls": 55892.0, "send_ns": pytest.approx(736479449)}
    assert Syscount().read(watched(), "read 5 1.0\n") == {}


def test_perf_trace_adds_up_its_threads(tmp_path: Path) -> None:
    shutil.copy(DATA / "perf-trace.txt", tmp_path / "trace.txt")
    once = PerfTrace().read(watched(tmp_path), "")
    assert once == {"send_calls": 10082.0, "send_ns": pytest.approx(358.482e6)}
    text = (tmp_path / "trace.txt").read_text(encoding="utf-8")
    (tmp_path / "trace.txt").write_text(text * 2, encoding="utf-8")
    assert PerfTrace().read(watched(tmp_path), "")["send_calls"] == 2 * 10082


def test_bpftrace_scalars_are_quantities_and_maps_are_not() -> None:
    output = "Attaching 6 probes...\n\n@send_calls: 23\n@since_[12]: 99\n@send_bytes: 94208\n"
    assert Bpftrace().read(watched(), output) == {"send_calls": 23.0, "send_bytes": 94208.0}


def test_funclatency_counts_its_slots() -> None:
    output = (
        "     nsec   : count    distribution\n  2048 -> 4095   : 20   |***|\n  4096 -> 8191   : 3   |*|\n"
    )
    assert Funclatency().read(watched(), output) == {"tcp_sendmsg_calls": 23.0}


def test_user_mode_samples_have_no_kernel_frames() -> None:
    shown = " ffffffff810000 tcp_sendmsg+0x12\n ffffffff820000 do_syscall_64\n\n   7f0000 main\n\n"
    assert kernel_stacks(shown) == [["tcp_sendmsg", "do_syscall_64"], []]


def test_missing_tool_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _program: None)
    for tool in PEERS:
        reason = tool().missing()
        assert reason is not None and "apt-get install" in reason


@pytest.mark.parametrize("name", ["syscount", "syscount-libbpf"])
def test_tool_is_found_under_the_names_of_its_distributions(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The programs of libbpf-tools have different names in Debian 12 and 13."""
    here = f"/usr/sbin/{name}"
    monkeypatch.setattr(shutil, "which", lambda program: program if program == here else None)
    assert Syscount().missing() is None
    assert Syscount().argv(watched())[0] == here


def observed(calls: float, send_ns: float, wall_ns: int = 1_000_000) -> Observation:
    return Observation(100, 6400, wall_ns, {"send_calls": calls, "send_ns": send_ns})


def test_equal_counts_agree_and_one_lost_call_in_a_hundred_does_not() -> None:
    mine = [observed(100, 50_000)]
    rows = {row.quantity: row for row in compare(mine, "peer", [observed(100, 50_500)] * 4, seed=1)}
    assert rows["send syscalls"].agrees and rows["time in send syscalls"].agrees
    rows = {row.quantity: row for row in compare(mine, "peer", [observed(99, 50_000)] * 4, seed=1)}
    assert rows["send syscalls"].agrees is False


def test_slowdown_by_a_tool_explains_its_longer_times() -> None:
    mine = [observed(100, 500_000)]
    slow = compare(mine, "peer", [observed(100, 900_000, wall_ns=1_500_000)] * 4, seed=1)
    timed = next(row for row in slow if row.quantity == "time in send syscalls")
    assert timed.agrees and timed.reason is not None
    unexplained = compare(mine, "peer", [observed(100, 900_000)] * 4, seed=1)
    assert next(row for row in unexplained if row.quantity == "time in send syscalls").agrees is False


def test_slowdown_by_our_hooks_explains_our_longer_times() -> None:
    theirs = [observed(100, 500_000)] * 4
    dear = compare([observed(100, 900_000, wall_ns=1_500_000)], "peer", theirs, seed=1)
    timed = next(row for row in dear if row.quantity == "time in send syscalls")
    assert timed.agrees and timed.reason is not None and timed.reason.startswith("our hooks")
    unexplained = compare([observed(100, 900_000)], "peer", theirs, seed=1)
    assert next(row for row in unexplained if row.quantity == "time in send syscalls").agrees is False


@pytest.mark.parametrize("gate", [1, 4])
def test_records_with_function_hooks_have_quantities_to_compare(gate: int) -> None:
    raw = raw_record("zero_copy", phases=("unprobed", "ledger", "calls", "functions"))
    (mine,) = [
        observation
        for observation in ours(with_functions(raw, gate=gate))
        if "pinned_bytes" in observation.quantities
    ]
    assert mine.quantities["pinned_bytes"] == mine.quantities["deferred_bytes"] == mine.bytes > 0
    assert mine.quantities["deferred_calls"] > 0
    (timed,) = [observation for observation in ours(raw) if "send_calls" in observation.quantities]
    assert timed.quantities["tcp_sendmsg_calls"] == timed.quantities["send_calls"] > 0
    assert timed.quantities["tcp_sendmsg_bytes"] == timed.bytes


def test_shares_agree_within_their_sampling_intervals() -> None:
    def samples(copy_in: int, tcp_ip: int) -> Observation:
        return Observation(1, 1, 1, {"samples:copy_in": float(copy_in), "samples:tcp_ip": float(tcp_ip)})

    alike = compare([samples(300, 700)], "perf record", [samples(160, 340)], seed=1)
    assert [row.agrees for row in alike] == [True, True]
    apart = compare([samples(300, 700)], "perf record", [samples(300, 200)], seed=1)
    assert {row.agrees for row in apart} == {False}
    _, few = compare([samples(9, 300)], "perf record", [samples(8, 90)], seed=1)  # rows are sorted by size
    assert few.agrees is None and few.reason is not None and "too few samples" in few.reason
    near, _ = sorted(
        compare([samples(200, 29_800)], "perf record", [samples(800, 29_200)], seed=1),
        key=lambda row: row.category or "",
    )
    assert near.low is not None and near.low > 1 and near.agrees  # they differ by two percentage points


def test_quantity_of_only_one_tool_is_not_judged() -> None:
    assert compare([observed(1, 1)], "peer", [Observation(1, 1, 1, {})], seed=1) == []
    only = [Observation(1, 1, 1, {"deferred_bytes": 5.0})]
    (row,) = compare([observed(1, 1)], "peer", only, seed=1)
    assert row.agrees is None and row.reason is not None

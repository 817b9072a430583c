# SPDX-License-Identifier: GPL-2.0-only
"""Snapshots of a program's connections: rare if they are expensive, and two for a short command."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from copyscope.plan.schedule import PlannedSegment
from copyscope.record.session_result import Raw
from copyscope.run import processes
from copyscope.run import program as run_program
from copyscope.run.program import WatchedProgram

BLOCK_S = 1.0
# CPU time for a table of 20,000 connections. A snapshot walks it twice: 0.5 % of a CPU allows one in 20 s.
WALK_S = 0.05
SIZE = 1000


class Kernel:
    """A kernel with one connection of the program while `open`. A walk of its table takes WALK_S."""

    def __init__(self) -> None:
        self.now_s = self.spent_s = 0.0
        self.walks = 0
        self.sent = 0
        self.open = True

    def step(self) -> None:
        self.now_s += BLOCK_S
        self.sent += SIZE * self.open

    def take(self, _path: object) -> Any:
        self.spent_s += WALK_S
        self.walks += 1
        times = dict.fromkeys(("busy_us", "rwnd_limited_us", "sndbuf_limited_us"), 0)
        addresses = {"local": "192.0.2.2:80", "peer": "192.0.2.1:40000", "established": True}
        connection = SimpleNamespace(
            written=self.sent, taken=0, bytes_retrans=0, mss_bytes=1448, **times, **addresses
        )
        return {7: connection} if self.open else {}

    def ask(self, line: str, *_: object) -> Any:
        assert line in ("sockets", "peers")
        return {"sockets": {"7": [self.sent, 0]} if self.open else {}, "counts_taken": False, "peers": []}


def watched(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> WatchedProgram:
    clock = SimpleNamespace(monotonic=lambda: kernel.now_s, process_time=lambda: kernel.spent_s)
    monkeypatch.setattr(processes, "time", clock)
    program = WatchedProgram(cast("Any", SimpleNamespace(command=command, how="pid")), None)
    monkeypatch.setattr(program, "_snapshots", kernel)
    monkeypatch.setattr(program, "_namespace", lambda: SimpleNamespace(path=None))
    monkeypatch.setattr(program, "_describe", lambda *_: None)
    monkeypatch.setattr(program, "_note_segment", lambda *_: None)
    monkeypatch.setattr(program, "has_ended", lambda: False)
    program.setup = cast("Any", SimpleNamespace(collector=kernel, raw=Raw()))
    program._followed = cast("Any", SimpleNamespace(pids=frozenset()))
    return program


@pytest.mark.parametrize(("cpus", "frequency_hz"), [(2, 9999), (8, 9999), (64, 199)])
def test_the_map_of_samples_is_emptied_before_it_is_full(
    cpus: int, frequency_hz: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The map has room for 16,384 stacks. Each of the samples on busy CPUs may be a new stack."""
    kernel = Kernel()
    emptied_s = [0.0]
    program = watched(kernel, monkeypatch, ("true",))

    def sleep(seconds: float, _: object) -> bool:
        kernel.now_s += seconds
        return False

    def empty(line: str, *_: object) -> None:
        assert line == "volume"
        emptied_s.append(kernel.now_s)

    monkeypatch.setattr(run_program, "time", SimpleNamespace(monotonic=lambda: kernel.now_s))
    monkeypatch.setattr("os.cpu_count", lambda: cpus)
    monkeypatch.setattr(kernel, "ask", empty)
    monkeypatch.setattr(program, "stop", SimpleNamespace(reason=None, sleep=sleep))
    monkeypatch.setattr(program, "code", SimpleNamespace(read_mappings=lambda _: None))
    monkeypatch.setattr(program, "_process_to_await", lambda: None)
    monkeypatch.setattr(program.setup, "perfs", {"target": SimpleNamespace(failure=None)}, raising=False)
    monkeypatch.setattr(program.setup, "plan", SimpleNamespace(frequency_hz=frequency_hz), raising=False)
    cpu_times = SimpleNamespace(update=lambda *_, **__: None)
    program._followed = cast("Any", SimpleNamespace(pids=(), cpu=cpu_times))
    program._wait(10)
    most_s = max(later - earlier for earlier, later in pairwise([*emptied_s, 10]))
    assert most_s * frequency_hz * cpus <= 16384


def test_the_connection_of_a_short_command_has_two_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both snapshots are taken while the command runs, because its connection is gone afterwards."""
    kernel = Kernel()
    kernel.open = False  # the command has not started
    program = watched(kernel, monkeypatch, ("curl",))
    segments = program.segments(PlannedSegment(n, n, "ledger", BLOCK_S) for n in range(3))
    program._read_connections()
    next(segments)
    kernel.open = True
    for _ in range(2):
        kernel.step()
        next(segments)
    kernel.open = False
    assert list(segments) == []
    (row,) = program.setup.raw.connections.rows()
    # The snapshots are taken after the first block and after the second.
    assert row.snapshots == 2
    assert row.sent_inner_bytes == row.sent_bytes == row.sent_outer_bytes == SIZE


@pytest.mark.parametrize(("command", "snapshots"), [((), 0), (("curl",), 1)])
def test_expensive_snapshots_take_at_most_half_a_percent_of_a_cpu(
    command: tuple[str, ...], snapshots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In nine blocks there is no snapshot, except the one that a command needs."""
    kernel = Kernel()
    program = watched(kernel, monkeypatch, command)
    program._read_connections()  # as start() does
    before = kernel.walks
    walks = 0
    for _ in program.segments(PlannedSegment(n, n, "ledger", BLOCK_S) for n in range(9)):
        walks = kernel.walks - before
        kernel.step()
    assert walks == 2 * snapshots

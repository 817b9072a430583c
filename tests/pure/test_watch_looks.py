"""When the connections of a program are looked at: seldom where that is dear, twice in a short command."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from copyscope.plan.schedule import Segment
from copyscope.record.session_result import Raw
from copyscope.run import processes
from copyscope.run.program import WatchedProgram

BLOCK_S = 1.0
# Of 20,000 connections of others; half a percent of one CPU is one look, which walks it twice, in 20 s.
WALK_S = 0.05
SIZE = 1000


class Kernel:
    """One connection of the program, once it is `open`; its table is walked in WALK_S of our CPU time."""

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
        named = {"local": "192.0.2.2:80", "peer": "192.0.2.1:40000", "established": True}
        seen = SimpleNamespace(written=self.sent, taken=0, bytes_retrans=0, mss_bytes=1448, **times, **named)
        return {7: seen} if self.open else {}

    def ask(self, line: str, *_: object) -> Any:
        assert line in ("sockets", "peers")
        return {"sockets": {"7": [self.sent, 0]} if self.open else {}, "counts_taken": False, "peers": []}


def watched(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> WatchedProgram:
    clock = SimpleNamespace(monotonic=lambda: kernel.now_s, process_time=lambda: kernel.spent_s)
    monkeypatch.setattr(processes, "time", clock)
    program = WatchedProgram(cast("Any", SimpleNamespace(command=command)), None)
    monkeypatch.setattr(program, "_snapshots", kernel)
    monkeypatch.setattr(program, "_namespace", lambda: SimpleNamespace(path=None))
    monkeypatch.setattr(program, "_describe", lambda *_: None)
    monkeypatch.setattr(program, "_learn", lambda *_: None)
    monkeypatch.setattr(program, "has_ended", lambda: False)
    program.setup = cast("Any", SimpleNamespace(collector=kernel, raw=Raw()))
    program._followed = cast("Any", SimpleNamespace(pids=frozenset()))
    return program


def test_the_connection_of_a_short_command_is_looked_at_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many connections others have; when the command has ended its own is gone."""
    kernel = Kernel()
    kernel.open = False  # it has none before it begins
    program = watched(kernel, monkeypatch, ("curl",))
    segments = program.segments(Segment(n, n, "ledger", BLOCK_S) for n in range(3))
    program._look_at_connections()
    next(segments)
    kernel.open = True
    for _ in range(2):
        kernel.step()
        next(segments)
    kernel.open = False
    assert list(segments) == []
    (row,) = program.setup.raw.connections.rows()
    # From the look after one block to the look after two.
    assert row["snapshots"] == 2
    assert row["sent_inner_bytes"] == row["sent_bytes"] == row["sent_outer_bytes"] == SIZE


@pytest.mark.parametrize(("command", "looks"), [((), 0), (("curl",), 1)])
def test_looks_that_are_dear_take_half_a_percent_of_a_cpu(
    command: tuple[str, ...], looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In nine blocks none; of a command the one that it needs besides."""
    kernel = Kernel()
    program = watched(kernel, monkeypatch, command)
    program._look_at_connections()  # as start() does
    before = kernel.walks
    made = 0
    for _ in program.segments(Segment(n, n, "ledger", BLOCK_S) for n in range(9)):
        made = kernel.walks - before
        kernel.step()
    assert made == 2 * looks

"""When the connections of a program are looked at: seldom where that is dear, twice in a short command."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from copyscope.plan.schedule import Segment
from copyscope.run.program import pace
from copyscope.run.program.spared import Spared
from copyscope.run.program.watched import WatchedProgram
from test_sparing import PROBES, Machine

BLOCK_S = 1.0
# Of 20,000 connections of others; 1 % of one CPU is one such look in 5 s.
WALK_S = 0.05


class Kernel(Machine):
    """Its table is walked in WALK_S of our CPU time; `spent_s` is all of that."""

    def __init__(self) -> None:
        super().__init__(rate=1000)
        self.spent_s = 0.0

    def look(self) -> Any:
        self.spent_s += WALK_S
        return super().look()

    def ask(self, line: str, *rest: Any) -> Any:
        return {**super().ask(line, *rest), "counts_taken": False, "peers": []}


def watched(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> WatchedProgram:
    clock = SimpleNamespace(monotonic=lambda: kernel.now_s, process_time=lambda: kernel.spent_s)
    monkeypatch.setattr(pace, "time", clock)
    target = SimpleNamespace(command=command)
    program = WatchedProgram(cast("Any", target), None)
    monkeypatch.setattr(program, "_describe", lambda *_: None)
    monkeypatch.setattr(program, "_learn", lambda *_: None)
    monkeypatch.setattr(program, "has_ended", lambda: False)
    program.session = cast("Any", SimpleNamespace(collector=kernel))
    plan = SimpleNamespace(functions=False, whole=False, probes=PROBES)
    args = cast("Any", (plan, program.raw, kernel, SimpleNamespace(pids={4711}), kernel.look))
    program._spared = Spared(*args, snapshots=cast("Any", kernel), began=bool(command))
    return program


def walks(kernel: Kernel, program: WatchedProgram, count: int) -> int:
    """How often the table is walked in so many blocks of one segment, but for the look at the end."""
    program._look_at_connections()  # as start() does
    before = kernel.whole_looks
    made = 0
    for _ in program.segments(Segment(n, n, "ledger", BLOCK_S) for n in range(count)):
        made = kernel.whole_looks - before
        kernel.step(BLOCK_S)
    return made


def test_the_connection_of_a_short_command_is_looked_at_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many connections others have; when the command has ended its own is gone."""
    kernel = Kernel()
    there = dict(kernel.by_hooks)
    kernel.by_hooks.clear()  # it has none before it begins
    program = watched(kernel, monkeypatch, ("curl",))
    segments = program.segments(Segment(n, n, "ledger", BLOCK_S) for n in range(3))
    program._look_at_connections()
    next(segments)
    kernel.by_hooks.update(there)
    for _ in range(2):
        kernel.step(BLOCK_S)
        next(segments)
    kernel.close_socket(then=10)
    assert list(segments) == []
    (row,) = program.raw.connections.rows()
    # From the look after one block to the look after two.
    assert row["snapshots"] == 2
    assert row["sent_inner_bytes"] == row["sent_bytes"] == row["sent_outer_bytes"] > 0
    assert row["sent_bytes"] == kernel.sent // 2


@pytest.mark.parametrize(("command", "most"), [((), 1), (("curl",), 3)])
def test_looks_that_are_dear_take_one_percent_of_a_cpu(
    command: tuple[str, ...], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel()
    # One look at 5 s and, of a command, the one that it needs besides.
    assert walks(kernel, watched(kernel, monkeypatch, command), 9) <= most


def test_a_look_walks_the_table_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """TCP's counts are asked for before ours and after: the second time for the program's own connections."""
    kernel = Kernel()
    program = watched(kernel, monkeypatch, ())
    program._look_at_connections()
    assert kernel.whole_looks == 1
    # One of them is gone meanwhile: what is there is asked for once more.
    monkeypatch.setattr(kernel, "again", lambda _: None)
    program._look_at_connections()
    assert kernel.whole_looks == 3

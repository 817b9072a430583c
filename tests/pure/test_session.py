"""One session for whoever is measured: what happens in which order, and what is left of a run that fails."""

import os
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from copyscope.errors import AbandonedError, RunError
from copyscope.machine import fingerprint
from copyscope.plan.instruments import SAMPLED
from copyscope.plan.run_plan import RunPlan, traffic_plan, watch_plan
from copyscope.plan.schedule import Segment
from copyscope.record.segments import WARM_UP
from copyscope.record.session_result import Mark, MeasuredSegment
from copyscope.run import session
from copyscope.run.session import Session, Setup, Subject

HOOK = {
    "instrument": "functions",
    "state": "available",
    "how": "fentry",
    "required": True,
    "id": "x",
    "reason": None,
}
PROBES: dict[str, tuple[str, ...]] = {
    "unprobed": (),
    "ledger": ("bytes", "sampler"),
    "functions": ("functions",),
    "unarmed": ("unarmed",),
}


class Collector:
    """It says yes to everything, and writes down what it was told."""

    name, pid = "collector", 1

    def __init__(self, said: list[str]) -> None:
        self.said, self.stdout = said, os.open(os.devnull, os.O_RDONLY)
        names = ("send", "receive")
        self.hooks = [{**HOOK, "symbol": name} for name in names]

    def expect(self, *_: object) -> dict[str, Any]:
        return {"hooks": self.hooks}

    def ask(self, line: str, event: str, _timeout_s: float = 0.0) -> dict[str, Any]:
        self.said.append(line)
        return {"event": event, "volume": {"at": event}}

    def fileno(self) -> int:
        return self.stdout

    def end(self) -> None:
        self.said.append("end")


class Somebody(Subject):
    """Somebody who does nothing but say what is done with him."""

    def __init__(self, said: list[str], fails: Callable[[Segment], None]) -> None:
        self.said, self.fails = said, fails
        self.answers: list[dict[str, Any]] = []
        perf: Any = SimpleNamespace(pid=None, enable=lambda: said.append("perf on"), finish=dict)
        perf.disable = lambda: said.append("perf off")
        self.perf = perf

    def prepare(self, setup: Setup) -> None:
        self.said.append("prepare")
        self.setup = setup
        setup.collector = setup.spawn("collector", setup.plan.collector())
        setup.perfs["target"] = self.perf

    def start(self) -> None:
        self.said.append("start")

    def mark(self, closed: dict[str, Any] | None = None) -> Any:
        if closed is None:
            return self._mark("before")
        self.answers.append(closed)
        return self._mark("after")

    def begin(self, segment: Segment, opened: dict[str, Any] | None) -> Any:  # noqa: ARG002
        self.answers += [] if opened is None else [opened]
        return self._mark("begin")

    def end(self, segment: Segment) -> Any:
        self.said.append(f"run {segment.length_s:g}")
        self.fails(segment)
        return self._mark("end")

    def _mark(self, name: str) -> Any:
        self.said.append(name)
        return {"target": {"at": name}}

    def pids(self) -> Iterable[int]:
        return ()

    def finish(self, *, failed: bool) -> None:
        self.said.append("finish after a failure" if failed else "finish")


def over(phase: str) -> MeasuredSegment:
    nobody: Mark = {}
    return {"index": 0, "block": 0, "phase": phase, "marks": (nobody, nobody, nobody, nobody)}


def nothing(_: Segment) -> None:
    pass


def made(
    monkeypatch: pytest.MonkeyPatch, phases: Iterable[str], fails: Callable[[Segment], None] = nothing
) -> tuple[Session, list[str]]:
    said: list[str] = []
    monkeypatch.setattr(session, "Child", lambda *_: Collector(said))
    monkeypatch.setattr(session, "_going", [])
    monkeypatch.setattr(fingerprint, "read_load", lambda own_ns, _: {"own_ns": own_ns})
    segments = tuple(Segment(number, 0, phase, 0.5) for number, phase in enumerate(phases))
    plan = RunPlan(PROBES, segments, 199, None, counters=True, seed=1)
    steps = session.Silent()
    return Session(plan, Somebody(said, fails), steps), said


def at(raw: Any) -> list[list[str]]:
    return [[mark["target"]["at"] for mark in segment["marks"]] for segment in raw.segments]


def test_a_mark_stands_on_either_side_of_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    run, said = made(monkeypatch, ["ledger"])
    raw = run.perform()
    assert said == [
        *("prepare", "start", "before", "open bytes,sampler", "perf on", "begin", "run 0.5"),
        *("end", "perf off", "close", "after", "report", "finish", "end"),
    ]
    assert at(raw) == [["before", "begin", "end", "after"]]
    assert raw.bytes_phase == "ledger" and len(raw.loads) == 2 and raw.errors == []


def test_where_nothing_changes_the_marks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    run, said = made(monkeypatch, ["unprobed"])
    assert at(run.perform()) == [["before", "begin", "end", "end"]]
    assert not [line for line in said if line.startswith(("open", "close", "perf", "after"))]


def test_function_hooks_count_from_one_moment_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = made(monkeypatch, ["functions"])
    assert at(run.perform()) == [["begin", "begin", "end", "after"]]
    subject: Any = run.subject
    assert [answer["volume"]["at"] for answer in subject.answers] == ["opened", "closed"]


def test_function_hooks_come_once_before_the_first_segment_that_wants_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, said = made(monkeypatch, ["unprobed", "unarmed", "functions", "functions"])
    run.perform()
    told = [line for line in said if line.startswith(("open", "close"))]
    opened = ("unarmed", "unarmed", "functions", "functions")
    assert told == [line for phase in opened for line in (f"open {phase}", "close")]


def test_the_next_run_waits_until_the_hooks_of_the_last_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    end, held = os.pipe()
    monkeypatch.setattr(session, "_going", [end])
    threading.Timer(0.2, os.close, [held]).start()
    began_s = time.monotonic()
    session.wait_for_earlier_hooks()
    assert 0.15 < time.monotonic() - began_s < session.GONE_S / 2
    began_s = time.monotonic()
    session.wait_for_earlier_hooks()
    assert time.monotonic() - began_s < 0.1


def test_what_takes_long_is_named_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    steps: Any = SimpleNamespace(slow=said.append)
    monkeypatch.setattr(session, "SLOW_S", 0.05)
    with session.slowly(steps, "quick"):
        pass
    with session.slowly(steps, "attaching"):
        time.sleep(0.2)
    time.sleep(0.1)
    assert said == ["attaching"]


@pytest.mark.parametrize(
    ("error", "interrupted", "errors"),
    [
        (RunError("sender: was killed by SIGKILL"), False, ["sender: was killed by SIGKILL"]),
        (KeyboardInterrupt(), True, ["interrupted: the run was stopped before its end"]),
    ],
)
def test_what_was_measured_is_kept(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, interrupted: bool, errors: list[str]
) -> None:
    """Of the second segment nothing is kept, and its hooks are gone before the report."""

    def fails(segment: Segment) -> None:
        if segment.index == 1:
            raise error

    run, said = made(monkeypatch, ["unprobed", "ledger", "ledger"], fails)
    raw = run.perform()
    assert (raw.interrupted, raw.errors, len(raw.segments), len(raw.loads)) == (interrupted, errors, 1, 2)
    finish = "finish" if interrupted else "finish after a failure"
    assert said[-5:] == ["perf off", "close", "report", finish, "end"]


def test_what_nobody_has_foreseen_loses_nothing_that_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a segment, when perf is read, and at the end; what is not the fault of these is still asked for."""

    nowhere: dict[str, Any] = {}

    def fails(segment: Segment) -> None:
        assert segment.index == 0, "of the second segment"

    def asked() -> None:
        raise OSError(24, "Too many open files")

    run, said = made(monkeypatch, ["unprobed", "unprobed"], fails)
    subject: Any = run.subject
    subject.perf.finish = asked
    subject.finish = lambda **_: nowhere["nothing"]
    raw = run.perform()
    assert len(raw.segments) == 1 and len(raw.loads) == 2 and "report" in said
    for error, why in zip(
        raw.errors, ("AssertionError: of the second", "OSError: [Errno 24]", "KeyError"), strict=True
    ):
        assert error.startswith("a fault of copyscope: run/session.py:") and why in error
    assert raw.collector is not None and said[-1] == "end"


def test_when_all_is_measured_a_signal_is_held_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a failure: the reports are still to be read."""
    nowhere: dict[str, Any] = {}

    def fault(_: Segment) -> None:
        nowhere["fails"]

    for fails in (nothing, fault):
        run, said = made(monkeypatch, ["unprobed"], fails)
        run.raw.segments.append(over("unprobed"))
        run.perform(partial(said.append, "hold"))
        assert said.count("hold") == 1 and said.index("hold") < said.index("report")


def test_a_signal_while_reports_are_read_is_no_whole_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = made(monkeypatch, ["unprobed"])
    subject: Any = run.subject

    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    subject.finish = interrupted
    raw = run.perform()
    assert raw.interrupted and raw.errors == ["interrupted: the run was stopped before its end"]


def test_what_the_users_command_used_is_no_load_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = made(monkeypatch, ["unprobed"])
    used_ns = iter((0, 10**15))
    monkeypatch.setattr(run.subject, "ended_ns", lambda: next(used_ns))
    before, after = (load["own_ns"] for load in run.perform().loads)
    assert 0 <= before < 10**15 and after < 0


@pytest.mark.parametrize("phase", ["unprobed", WARM_UP])
def test_of_a_run_that_measured_nothing_there_is_no_record(
    monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    def fails(_: Segment) -> None:
        raise RunError("receiver: no answer in time: it is still running")

    run, said = made(monkeypatch, ["unprobed"], fails)
    run.raw.segments += [over(phase)] * (phase == WARM_UP)
    with pytest.raises(RunError, match="receiver: no answer"):
        run.perform()
    assert "report" not in said and said[-1] == "end"


def test_who_asks_three_times_for_the_end_wants_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(segment: Segment) -> None:
        if segment.index == 1:
            raise AbandonedError

    run, said = made(monkeypatch, ["unprobed", "unprobed"], fails)
    with pytest.raises(AbandonedError):
        run.perform()
    assert "report" not in said and said[-1] == "end"


def options(**changed: Any) -> Any:
    """What copyscope run was given, as far as a plan is made of it."""
    given = {"instruments": "auto", "duration": 2.0, "messages": None, "gate": None}
    given |= {"frequency": 199, "attach": "any", "copy_in": "any", "count": None, "live": False, "pid": None}
    return SimpleNamespace(**{**given, "whole": False, "exact": False, **changed})


def test_both_subjects_are_measured_by_one_kind_of_plan() -> None:
    """Traffic tells what it moves: its bytes are counted apart. Of a program the hooks count them always."""
    own, watched = traffic_plan(options(), SAMPLED, 1, in_pieces=False), watch_plan(options(), 1)
    assert set(own.probes) == {"unprobed", "ledger", "calls", "bytes"} and own.always == ()
    assert set(watched.probes) == {"unprobed", "ledger", "calls"}
    exact = watch_plan(options(exact=True), 1)
    assert set(exact.probes) == {*watched.probes, "functions", "unarmed"}
    # Of a program nobody knows which functions its bytes pass.
    assert "--functions" in exact.collector() and "--moves" not in exact.collector()
    assert watched.always == ("watch", "volume")
    assert own.collector()[1:] == ["--frequency", "199"]
    assert watched.collector()[1:] == ["--frequency", "199"]


def test_one_segment_is_the_whole_run_of_either() -> None:
    (own,) = traffic_plan(options(messages=23), SAMPLED, 1, in_pieces=False).segments
    (watched,) = watch_plan(options(whole=True, duration=None), 1).segments
    assert (own.phase, own.length_s) == (watched.phase, watched.length_s) == ("ledger+calls", float("inf"))
    (timed,) = watch_plan(options(whole=True), 1).segments
    assert timed.length_s == 2.0


def test_a_kernel_without_the_hooks_that_always_stay_is_refused() -> None:
    hook = {**HOOK, "instrument": "watch", "symbol": "fork", "state": "missing", "reason": "no BTF"}
    with pytest.raises(RunError, match="cannot be watched on this kernel: fork: missing: no BTF"):
        watch_plan(options(), 1).on_this_kernel([hook])

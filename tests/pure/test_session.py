# SPDX-License-Identifier: GPL-2.0-only
"""A session of any subject: the order of its steps, and the data that a failed run keeps."""

import os
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from copyscope.base.errors import AbandonedError, RunError
from copyscope.machine import fingerprint
from copyscope.machine.fingerprint import CpuLoad
from copyscope.plan.run_plan import RunPlan, traffic_plan, watch_plan
from copyscope.plan.schedule import SAMPLED, PlannedSegment
from copyscope.record.messages import Mark, SwitchMessage
from copyscope.record.moved import MeasuredSegment
from copyscope.record.segments import WARM_UP
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
    """A collector that accepts every command and logs it."""

    name, pid = "collector", 1

    def __init__(self, log: list[str]) -> None:
        self.log, self.stdout = log, os.open(os.devnull, os.O_RDONLY)
        names = ("send", "receive")
        self.hooks = [{**HOOK, "symbol": name} for name in names]

    def expect(self, *_: object) -> dict[str, Any]:
        return {"hooks": self.hooks}

    def ask(self, line: str, event: str, _timeout_s: float = 0.0) -> dict[str, Any]:
        self.log.append(line)
        return {"event": event, "volume": {"at": event}}

    def fileno(self) -> int:
        return self.stdout

    def end(self) -> None:
        self.log.append("end")


class LoggingSubject(Subject):
    """A subject that does nothing except log each call."""

    def __init__(self, log: list[str], fails: Callable[[PlannedSegment], None]) -> None:
        self.log, self.fails = log, fails
        self.answers: list[SwitchMessage] = []
        perf: Any = SimpleNamespace(pid=None, enable=lambda: log.append("perf on"), finish=dict)
        perf.disable = lambda: log.append("perf off")
        self.perf = perf

    def prepare(self, setup: Setup) -> None:
        self.log.append("prepare")
        self.setup = setup
        setup.collector = setup.spawn("collector", setup.plan.collector())
        setup.perfs["target"] = self.perf

    def start(self) -> None:
        self.log.append("start")

    def mark(self, closed: SwitchMessage | None = None) -> Any:
        if closed is None:
            return self._mark("before")
        self.answers.append(closed)
        return self._mark("after")

    def begin(self, segment: PlannedSegment, opened: SwitchMessage | None) -> Any:  # noqa: ARG002
        self.answers += [] if opened is None else [opened]
        return self._mark("begin")

    def end(self, segment: PlannedSegment) -> Any:
        self.log.append(f"run {segment.length_s:g}")
        self.fails(segment)
        return self._mark("end")

    def _mark(self, name: str) -> Any:
        self.log.append(name)
        return {"target": {"at": name}}

    def pids(self) -> Iterable[int]:
        return ()

    def finish(self, *, failed: bool) -> None:
        self.log.append("finish after a failure" if failed else "finish")


def finished_segment(phase: str) -> MeasuredSegment:
    empty: Mark = {}
    return MeasuredSegment(0, 0, phase, (empty, empty, empty, empty))


def do_nothing(_: PlannedSegment) -> None:
    pass


def logged_session(
    monkeypatch: pytest.MonkeyPatch,
    phases: Iterable[str],
    fails: Callable[[PlannedSegment], None] = do_nothing,
) -> tuple[Session, list[str]]:
    log: list[str] = []
    monkeypatch.setattr(session, "Child", lambda *_: Collector(log))
    monkeypatch.setattr(session, "_detaching", [])
    monkeypatch.setattr(fingerprint, "read_load", lambda own_ns, *_: CpuLoad(0, own_ns))
    segments = tuple(PlannedSegment(number, 0, phase, 0.5) for number, phase in enumerate(phases))
    plan = RunPlan(PROBES, segments, 199, None, counters=True, seed=1)
    steps = session.SilentProgress()
    return Session(plan, LoggingSubject(log, fails), steps), log


def names_of_marks(raw: Any) -> list[list[str]]:
    return [[mark["target"]["at"] for mark in segment.marks] for segment in raw.segments]


def test_the_sampler_spares_isolated_cpus_until_the_subject_may_use_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CPUs 2, 3 and 6 are isolated. The subject uses 0 and 3, and in the third segment also 6."""
    run, log = logged_session(monkeypatch, ["unprobed", "ledger", "ledger", "ledger"])
    used = iter([None, frozenset({0, 3}), frozenset({0, 3, 6})])
    monkeypatch.setattr(run, "_isolated_cpus", frozenset({2, 3, 6}))
    monkeypatch.setattr(run.subject, "cpus", lambda: next(used))
    run.perform()
    switched = [line for line in log if line.startswith(("spare", "open"))]
    assert switched == [
        *("open bytes,sampler", "spare 2,6", "open bytes,sampler", "spare 2", "open bytes,sampler")
    ]


def test_counters_are_read_before_and_after_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    run, log = logged_session(monkeypatch, ["ledger"])
    raw = run.perform()
    assert log == [
        *("prepare", "start", "before", "open bytes,sampler", "perf on", "begin", "run 0.5"),
        *("end", "perf off", "close", "after", "report", "finish", "end"),
    ]
    assert names_of_marks(raw) == [["before", "begin", "end", "after"]]
    assert raw.bytes_phase == "ledger" and len(raw.loads) == 2 and raw.errors == []


def test_without_a_change_the_reading_at_the_end_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    run, log = logged_session(monkeypatch, ["unprobed"])
    assert names_of_marks(run.perform()) == [["before", "begin", "end", "end"]]
    assert not [line for line in log if line.startswith(("open", "close", "perf", "after"))]


def test_function_hooks_count_from_opening_to_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = logged_session(monkeypatch, ["functions"])
    assert names_of_marks(run.perform()) == [["begin", "begin", "end", "after"]]
    subject: Any = run.subject
    assert [answer["volume"]["at"] for answer in subject.answers] == ["opened", "closed"]


def test_function_hooks_are_attached_once_before_their_first_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, log = logged_session(monkeypatch, ["unprobed", "unarmed", "functions", "functions"])
    run.perform()
    commands = [line for line in log if line.startswith(("open", "close"))]
    opened = ("unarmed", "unarmed", "functions", "functions")
    assert commands == [line for phase in opened for line in (f"open {phase}", "close")]


def test_a_run_waits_until_hooks_of_the_last_run_are_detached(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    monkeypatch.setattr(session, "_detaching", [read_end])
    threading.Timer(0.2, os.close, [write_end]).start()
    began_s = time.monotonic()
    session.wait_for_earlier_hooks()
    assert 0.15 < time.monotonic() - began_s < session.DETACH_TIMEOUT_S / 2
    began_s = time.monotonic()
    session.wait_for_earlier_hooks()
    assert time.monotonic() - began_s < 0.1


def test_only_slow_steps_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []
    steps: Any = SimpleNamespace(slow=named.append)
    monkeypatch.setattr(session, "SLOW_STEP_S", 0.05)
    with session.name_if_slow(steps, "quick"):
        pass
    with session.name_if_slow(steps, "attaching"):
        time.sleep(0.2)
    time.sleep(0.1)
    assert named == ["attaching"]


@pytest.mark.parametrize(
    ("error", "interrupted", "errors"),
    [
        (RunError("sender: was killed by SIGKILL"), False, ["sender: was killed by SIGKILL"]),
        (KeyboardInterrupt(), True, ["interrupted: the run was stopped before its end"]),
    ],
)
def test_measured_segments_are_kept_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, interrupted: bool, errors: list[str]
) -> None:
    """The failed second segment is dropped. Its hooks are detached before the report."""

    def fails(segment: PlannedSegment) -> None:
        if segment.index == 1:
            raise error

    run, log = logged_session(monkeypatch, ["unprobed", "ledger", "ledger"], fails)
    raw = run.perform()
    assert (raw.interrupted, raw.errors, len(raw.segments), len(raw.loads)) == (interrupted, errors, 1, 2)
    finish = "finish" if interrupted else "finish after a failure"
    assert log[-5:] == ["perf off", "close", "report", finish, "end"]


def test_bugs_do_not_lose_measured_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment, the reading of perf and the end all fail. The collector's report is still read."""

    nowhere: dict[str, Any] = {}

    def fails(segment: PlannedSegment) -> None:
        assert segment.index == 0, "of the second segment"

    def fail_to_read() -> None:
        raise OSError(24, "Too many open files")

    run, log = logged_session(monkeypatch, ["unprobed", "unprobed"], fails)
    subject: Any = run.subject
    subject.perf.finish = fail_to_read
    subject.finish = lambda **_: nowhere["nothing"]
    raw = run.perform()
    assert len(raw.segments) == 1 and len(raw.loads) == 2 and "report" in log
    for error, reason in zip(
        raw.errors, ("AssertionError: of the second", "OSError: [Errno 24]", "KeyError"), strict=True
    ):
        assert error.startswith("a bug in copyscope: run/session.py:") and reason in error
    assert raw.collector is not None and log[-1] == "end"


def test_after_the_measurement_signals_are_held_off_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals are held off after a failure too, because the reports are still unread."""
    nowhere: dict[str, Any] = {}

    def fail(_: PlannedSegment) -> None:
        nowhere["fails"]

    for fails in (do_nothing, fail):
        run, log = logged_session(monkeypatch, ["unprobed"], fails)
        run.raw.segments.append(finished_segment("unprobed"))
        run.perform(partial(log.append, "hold"))
        assert log.count("hold") == 1 and log.index("hold") < log.index("report")


def test_a_signal_during_the_reports_marks_the_run_as_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = logged_session(monkeypatch, ["unprobed"])
    subject: Any = run.subject

    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    subject.finish = interrupted
    raw = run.perform()
    assert raw.interrupted and raw.errors == ["interrupted: the run was stopped before its end"]


def test_cpu_time_of_the_users_command_is_subtracted_from_the_own_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, _ = logged_session(monkeypatch, ["unprobed"])
    used_ns = iter((0, 10**15))
    monkeypatch.setattr(run.subject, "ended_ns", lambda: next(used_ns))
    before, after = (load.own_ns or 0 for load in run.perform().loads)
    assert 0 <= before < 10**15 and after < 0


@pytest.mark.parametrize("phase", ["unprobed", WARM_UP])
def test_a_run_that_measured_nothing_raises_its_error(monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    def fails(_: PlannedSegment) -> None:
        raise RunError("receiver: no answer in time: it is still running")

    run, log = logged_session(monkeypatch, ["unprobed"], fails)
    run.raw.segments += [finished_segment(phase)] * (phase == WARM_UP)
    with pytest.raises(RunError, match="receiver: no answer"):
        run.perform()
    assert "report" not in log and log[-1] == "end"


def test_an_abandoned_run_has_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(segment: PlannedSegment) -> None:
        if segment.index == 1:
            raise AbandonedError

    run, log = logged_session(monkeypatch, ["unprobed", "unprobed"], fails)
    with pytest.raises(AbandonedError):
        run.perform()
    assert "report" not in log and log[-1] == "end"


def options(**changed: Any) -> Any:
    """Return the options of `copyscope run` that a plan reads."""
    values = {"instruments": "auto", "duration": 2.0, "messages": None, "gate": None}
    values |= {"frequency": 199, "attach": "any", "copy_in": "any", "count": None, "live": False, "pid": None}
    return SimpleNamespace(**{**values, "whole": False, "exact": False, **changed})


def test_own_traffic_and_watched_programs_have_plans_of_one_kind() -> None:
    """Own traffic has segments that count bytes. Byte counters of a watched program stay attached."""
    own, watched = traffic_plan(options(), SAMPLED, 1, in_pieces=False), watch_plan(options(), 1)
    assert set(own.probes) == {"unprobed", "ledger", "calls", "bytes"} and own.always == ()
    assert set(watched.probes) == {"unprobed", "ledger", "calls"}
    exact = watch_plan(options(exact=True), 1)
    assert set(exact.probes) == {*watched.probes, "functions", "unarmed"}
    # The functions that the bytes of a program pass are unknown, so --moves is absent.
    assert "--functions" in exact.collector() and "--moves" not in exact.collector()
    assert watched.always == ("watch", "volume")
    assert own.collector()[1:] == ["--frequency", "199"]
    assert watched.collector()[1:] == ["--frequency", "199"]


def test_with_messages_or_whole_the_run_has_one_segment() -> None:
    (own,) = traffic_plan(options(messages=23), SAMPLED, 1, in_pieces=False).segments
    (watched,) = watch_plan(options(whole=True, duration=None), 1).segments
    assert (own.phase, own.length_s) == (watched.phase, watched.length_s) == ("ledger+calls", float("inf"))
    (timed,) = watch_plan(options(whole=True), 1).segments
    assert timed.length_s == 2.0


def test_a_kernel_without_the_hooks_of_watch_is_refused() -> None:
    hook = {**HOOK, "instrument": "watch", "symbol": "fork", "state": "missing", "reason": "no BTF"}
    with pytest.raises(RunError, match="cannot be watched on this kernel: fork: missing: no BTF"):
        watch_plan(options(), 1).on_this_kernel([hook])

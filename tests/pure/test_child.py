# SPDX-License-Identifier: GPL-2.0-only
"""Child programs that answer by JSON lines: late, unreadable and endless answers, stopped programs."""

import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest
from copyscope.base.errors import RunError
from copyscope.run import child as child_module
from copyscope.run.child import Child

# Program that answers `open` after 0.4 s, and other commands at once.
SLOW_TO_OPEN = """
import json, sys, time
events = {"open": "opened", "close": "closed", "report": "report"}
for number, line in enumerate(sys.stdin):
    word = line.strip()
    if word == "open":
        time.sleep(0.4)
    print(json.dumps({"event": events[word], "number": number}), flush=True)
"""


@pytest.fixture(autouse=True)
def _check_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "CHECK_STOPPED_S", 0.2)


@pytest.fixture
def child() -> Iterator[Child]:
    slow_child = Child("collector", [sys.executable, "-c", SLOW_TO_OPEN])
    yield slow_child
    slow_child.end()


def test_late_answer_to_an_interrupted_question_is_discarded(child: Child) -> None:
    """The child still answers an interrupted question. The next question must not receive that answer."""
    with pytest.raises(RunError, match="no answer in time"):
        child.ask("open", "opened", 0.05)
    assert child.ask("close", "closed")["number"] == 1
    assert child.ask("report", "report")["number"] == 2


def test_unrequested_answer_is_an_error(child: Child) -> None:
    child.send("close")
    with pytest.raises(RunError, match="unexpected answer 'closed' instead of 'report'"):
        child.ask("report", "report")


def test_stopped_program_is_reported_long_before_the_timeout(child: Child) -> None:
    child.ask("close", "closed")
    os.kill(child.pid, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(RunError, match=r"process \d+ is stopped \(SIGSTOP\)"):
        child.ask("report", "report", 60.0)
    assert time.monotonic() - began < 10
    # A second question, and end(), return at once instead of waiting for the stopped program.
    began = time.monotonic()
    with pytest.raises(RunError, match=r"process \d+ is stopped \(SIGSTOP\)"):
        child.ask("report", "report", 60.0)
    child.end()
    assert time.monotonic() - began < 0.5


@pytest.mark.parametrize("waits", ["for an answer", "for the end"])
def test_stopped_program_that_another_waits_for_is_named(child: Child, waits: str) -> None:
    """A sender can neither pause nor finish while its receiver does not read."""
    mute = Child("receiver", [sys.executable, "-c", "import sys; sys.stdin.read()"])
    os.kill(mute.pid, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(RunError, match=rf"^receiver: no answer: process {mute.pid} is stopped"):
        if waits == "for an answer":
            child.expect("mark", 60.0, needs=[mute])
        else:
            child_module.wait_until_finished([child], None, needs=[mute])
    mute.end()
    assert time.monotonic() - began < 10
    assert child.ask("report", "report")["event"] == "report"


@pytest.mark.parametrize("answer", ["no JSON", "[1]", '{"event": 1}', "{}", "[" * 100_000])
def test_unreadable_answer_is_reported_with_the_name_of_the_program(answer: str) -> None:
    collector = Child("collector", [sys.executable, "-c", f"import sys; print({answer!r})"])
    with pytest.raises(RunError, match="collector: unreadable answer ") as raised:
        collector.expect("ready")
    assert len(str(raised.value)) < 200
    collector.end()


FLOOD = """
import sys
for number in range(50_000):
    print(f"line {number:94}", file=sys.stderr)
sys.exit("all of it said")
"""


def test_beginning_and_end_of_a_long_stderr_are_kept() -> None:
    collector = Child("collector", [sys.executable, "-c", FLOOD])
    with pytest.raises(RunError) as raised:
        collector.expect("ready")
    # 50,000 lines of 100 bytes and one line of 15 bytes; 64 KiB are kept.
    left_out = (50_000 * 100 + 15 - (64 << 10)) / (1 << 20)
    assert str(raised.value) == (
        f"collector: ended with status 1: ({left_out:.2f} MiB of earlier output left out) all of it said"
    )
    stderr_lines = collector._stderr.lines()
    assert (
        stderr_lines[0].split() == ["line", "0"]
        and sum(len(line) + 1 for line in stderr_lines) < (64 << 10) + 100
    )
    assert stderr_lines[-2].split() == ["line", "49999"]
    collector.end()


def test_endless_answer_is_cut_off_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "ANSWER_MAX_BYTES", 1 << 20)
    collector = Child("collector", [sys.executable, "-c", "while True: print('x' * 65536, end='')"])
    with pytest.raises(RunError, match="collector: the answer is longer than 1 MiB"):
        collector.expect("ready")
    collector.end()

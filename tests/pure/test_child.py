"""Programs of ours that are asked by lines: late answers, and programs that somebody has stopped."""

import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest
from copyscope.errors import RunError
from copyscope.run import child as child_module
from copyscope.run.child import Child

# Answers `open` late, and everything else at once.
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
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "LOOK_S", 0.2)


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child("collector", [sys.executable, "-c", SLOW_TO_OPEN])
    yield made
    made.end()


def test_who_was_interrupted_leaves_no_answer_for_the_next(child: Child) -> None:
    """An interrupted question is answered all the same: the next one must not take that for its own."""
    with pytest.raises(RunError, match="no answer in time"):
        child.ask("open", "opened", 0.05)
    assert child.ask("close", "closed")["number"] == 1
    assert child.ask("report", "report")["number"] == 2


def test_what_nobody_asked_for_is_still_an_error(child: Child) -> None:
    child.send("close")
    with pytest.raises(RunError, match="unexpected answer 'closed' instead of 'report'"):
        child.ask("report", "report")


def test_a_stopped_program_is_seen_long_before_the_answer_is_overdue(child: Child) -> None:
    child.ask("close", "closed")
    os.kill(child.pid, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(RunError, match=r"process \d+ is stopped \(SIGSTOP\)"):
        child.ask("report", "report", 60.0)
    assert time.monotonic() - began < 10
    # It is not waited for a second time, nor for its end.
    began = time.monotonic()
    with pytest.raises(RunError, match=r"process \d+ is stopped \(SIGSTOP\)"):
        child.ask("report", "report", 60.0)
    child.end()
    assert time.monotonic() - began < 0.5


@pytest.mark.parametrize("waits", ["for an answer", "for the end"])
def test_whom_it_needs_is_named_when_that_one_is_stopped(child: Child, waits: str) -> None:
    """A sender cannot pause, nor finish, while its receiver reads nothing."""
    mute = Child("receiver", [sys.executable, "-c", "import sys; sys.stdin.read()"])
    os.kill(mute.pid, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(RunError, match=rf"^receiver: no answer: process {mute.pid} is stopped"):
        if waits == "for an answer":
            child.expect("mark", 60.0, needs=[mute])
        else:
            child_module.watch([child], None, needs=[mute])
    mute.end()
    assert time.monotonic() - began < 10
    assert child.ask("report", "report")["event"] == "report"


@pytest.mark.parametrize("said", ["no JSON", "[1]", '{"event": 1}', "{}", "[" * 100_000])
def test_an_answer_that_cannot_be_read_is_named(said: str) -> None:
    made = Child("collector", [sys.executable, "-c", f"import sys; print({said!r})"])
    with pytest.raises(RunError, match="collector: an answer that cannot be read: ") as raised:
        made.expect("ready")
    assert len(str(raised.value)) < 200
    made.end()


FLOOD = """
import sys
for number in range(50_000):
    print(f"line {number:94}", file=sys.stderr)
sys.exit("all of it said")
"""


def test_of_a_flood_of_complaints_the_ends_are_kept() -> None:
    made = Child("collector", [sys.executable, "-c", FLOOD])
    with pytest.raises(RunError) as raised:
        made.expect("ready")
    # 50,000 lines of 100 bytes and one of 15, of which 64 KiB are kept
    left_out = (50_000 * 100 + 15 - (64 << 10)) / (1 << 20)
    assert str(raised.value) == (
        f"collector: ended with status 1: ({left_out:.2f} MiB before it left out) all of it said"
    )
    said = made._complaints.lines()
    assert said[0].split() == ["line", "0"] and sum(len(line) + 1 for line in said) < (64 << 10) + 100
    assert said[-2].split() == ["line", "49999"]
    made.end()


def test_an_answer_without_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "ANSWER_MAX_BYTES", 1 << 20)
    made = Child("collector", [sys.executable, "-c", "while True: print('x' * 65536, end='')"])
    with pytest.raises(RunError, match="collector: an answer of more than 1 MiB"):
        made.expect("ready")
    made.end()

"""Ctrl-C and SIGTERM, at any moment: no traceback, and what is measured is kept."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from copyscope import paths
from copyscope.commands import entry
from copyscope.commands.ending import Ending
from copyscope.errors import AbandonedError
from copyscope.run.command import PATIENCE, Stop

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def send(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.01)  # for the handler


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("number", SIGNALS)
def test_before_all_is_measured_a_signal_stops_the_run_and_afterwards_it_is_noted(number: int) -> None:
    before = handlers()
    with Ending() as ending:
        with pytest.raises(KeyboardInterrupt):
            send(number)
        ending.hold()
        for asked in range(1, PATIENCE):
            send(number)
            assert ending.asked == asked
        with pytest.raises(AbandonedError):
            send(number)
    assert handlers() == before


def test_under_nohup_a_terminal_that_goes_is_no_end() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Ending():
            send(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_watch_that_has_measured_is_not_interrupted_but_by_the_third_signal() -> None:
    before = handlers()
    stop = Stop()
    undo = stop.listen(None, set)
    try:
        stop.measured = True
        send(signal.SIGTERM)
        assert stop.reason == "stopped by SIGTERM"
        # Something else takes long meanwhile, as the crossover of an advice.
        with stop.aside(), pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
        send(signal.SIGINT)
        with pytest.raises(AbandonedError):
            send(signal.SIGINT)
    finally:
        undo()
    assert handlers() == before


@pytest.mark.parametrize(
    ("ended", "said"),
    [(KeyboardInterrupt, "nothing"), (AbandonedError, entry.GIVEN_UP)],
)
def test_how_it_was_ended_is_said(
    ended: type[BaseException], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def job() -> int:
        raise ended

    assert entry.run(job, "nothing") == entry.INTERRUPTED
    assert capsys.readouterr().err == f"copyscope: {said}\n"


NOT_THERE = "copyscope: /no/such/sweep"


@pytest.mark.parametrize(
    ("loaded", "statuses"),
    [
        ("copyscope.environment", [-signal.SIGINT]),
        ("copyscope.commands.entry", [entry.INTERRUPTED, -signal.SIGINT]),
        ("copyscope.commands.reading", [entry.INTERRUPTED, -signal.SIGINT]),
    ],
)
def test_ctrl_c_while_all_is_loaded_is_no_traceback(loaded: str, statuses: list[int]) -> None:
    """The interpreter says what it has loaded: from its own start on it takes a third of a second."""
    argv = [sys.executable, "-I", "-X", "importtime", "-m", "copyscope", "report", "/no/such/sweep"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if line.split("|")[-1].strip() == loaded:
                break
        run.send_signal(signal.SIGINT)
        said = [line for line in run.stderr.read().splitlines() if not line.startswith("import time:")]
    # On a busy machine it may have come to its end before.
    if [line.partition(": no such")[0] for line in said] == [NOT_THERE]:
        assert run.returncode == entry.USAGE
        return
    assert run.returncode in statuses, said
    # While the interpreter itself ends there may be a line, or none.
    assert all(line.startswith("copyscope: interrupted") for line in said)
    assert (run.returncode > 0) <= len(said) <= 1


@pytest.mark.skipif(
    subprocess.run(["env", "--block-signal=INT", "true"], capture_output=True, check=False).returncode != 0,
    reason="env(1) is older than coreutils 8.31",
)
def test_ctrl_c_at_any_moment_of_the_command_is_no_traceback() -> None:
    """Also while Python itself starts, for the look at the tree and for the command."""
    argv = [str(paths.ROOT / "bin" / "copyscope"), "watch", "--help"]
    for after_ms in range(0, 240, 20):
        with subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as run:
            time.sleep(after_ms / 1000)
            os.killpg(run.pid, signal.SIGINT)
            _, said = run.communicate(timeout=20)
        assert said in ("", "copyscope: interrupted\n")
        assert run.returncode in (0, entry.INTERRUPTED, -signal.SIGINT)


FAULT = """
import sys
from copyscope import __main__
from copyscope.commands import copyscope
def fails(words):
    raise {error}
copyscope.main = fails
sys.exit(__main__.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("verb", "status"), [("run", 1), ("diff", 2)])
def test_what_nobody_has_foreseen_is_one_line(verb: str, status: int) -> None:
    code = FAULT.format(error="AssertionError('a\\nb\\x1b[2J')")
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, verb], capture_output=True, text=True, timeout=30, check=False
    )
    place, said = "copyscope: a fault of copyscope: __main__.py:", "AssertionError: a b␛[2J: report it\n"
    assert done.returncode == status and done.stdout == ""
    assert done.stderr.startswith(place) and done.stderr.endswith(said) and done.stderr.count("\n") == 1

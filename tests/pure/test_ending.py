# SPDX-License-Identifier: GPL-2.0-only
"""Ctrl-C and SIGTERM at any moment cause no traceback, and finished measurements are saved."""

import os
import re
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from copyscope.base import paths
from copyscope.base.errors import AbandonedError
from copyscope.commands import entry
from copyscope.commands.output_files import SignalGuard
from copyscope.run.command import SIGNALS_TO_ABANDON, Stop

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def send(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.01)  # for the handler


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_stops_a_measurement_but_not_its_report(number: int) -> None:
    before = handlers()
    with SignalGuard() as guard:
        with pytest.raises(KeyboardInterrupt):
            send(number)
        guard.measuring_done()
        for asked in range(1, SIGNALS_TO_ABANDON):
            send(number)
            assert guard.ignored_signals == asked
        with pytest.raises(AbandonedError):
            send(number)
    assert handlers() == before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_a_callback_swallows_is_raised_again() -> None:
    class Noisy:
        def __del__(self) -> None:
            send(signal.SIGINT)  # Python prints and drops exceptions of __del__()

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)]
    with pytest.raises(KeyboardInterrupt), entry.insistent_interrupts():
        del (noisy := [Noisy()])[:]
        assert not noisy
        time.sleep(10)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)] == before


def test_nohup_ignores_sighup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with SignalGuard():
            send(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_after_the_measurement_only_the_third_signal_ends_a_watch() -> None:
    before = handlers()
    stop = Stop()
    undo = stop.listen(None, set)
    try:
        stop.measured = True
        send(signal.SIGTERM)
        assert stop.reason == "stopped by SIGTERM"
        # A later task, such as the crossover of advise, has the earlier handlers again.
        with stop.aside(), pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
        send(signal.SIGINT)
        with pytest.raises(AbandonedError):
            send(signal.SIGINT)
    finally:
        undo()
    assert handlers() == before


@pytest.mark.parametrize(
    ("ended", "message"),
    [(KeyboardInterrupt, "nothing"), (AbandonedError, entry.ABANDONED)],
)
def test_the_message_says_how_the_command_was_ended(
    ended: type[BaseException], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def job() -> int:
        raise ended

    assert entry.run("run", job, "nothing") == entry.INTERRUPTED
    assert capsys.readouterr().err == f"copyscope run: {message}\n"


NOT_THERE = "copyscope report: /no/such/sweep"


@pytest.mark.parametrize(
    ("loaded", "statuses"),
    [
        ("copyscope.base.process", [-signal.SIGINT]),
        ("copyscope.commands.entry", [entry.INTERRUPTED, -signal.SIGINT]),
        ("copyscope.commands.record_files", [entry.INTERRUPTED, -signal.SIGINT]),
    ],
)
def test_ctrl_c_while_modules_are_loaded_is_no_traceback(loaded: str, statuses: list[int]) -> None:
    """Python prints the modules that it has loaded (-X importtime); SIGINT follows one of them."""
    argv = [sys.executable, "-I", "-X", "importtime", "-m", "copyscope.commands", "report", "/no/such/sweep"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if line.split("|")[-1].strip() == loaded:
                break
        run.send_signal(signal.SIGINT)
        lines = [line for line in run.stderr.read().splitlines() if not line.startswith("import time:")]
    # On a busy machine the command may end before the signal arrives.
    if [line.partition(": no such")[0] for line in lines] == [NOT_THERE]:
        assert run.returncode == entry.USAGE
        return
    assert run.returncode in statuses, lines
    # A signal while Python exits may cause no line.
    assert all(re.match(r"copyscope( report)?: interrupted", line) for line in lines)
    assert (run.returncode > 0) <= len(lines) <= 1


@pytest.mark.skipif(
    subprocess.run(["env", "--block-signal=INT", "true"], capture_output=True, check=False).returncode != 0,
    reason="env(1) is older than coreutils 8.31",
)
def test_ctrl_c_at_any_moment_is_no_traceback() -> None:
    """SIGINT may also arrive while Python starts: first for trust.py, then for the command."""
    argv = [str(paths.ROOT / "bin" / "copyscope"), "watch", "--help"]
    for after_ms in range(0, 240, 20):
        with subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as run:
            time.sleep(after_ms / 1000)
            os.killpg(run.pid, signal.SIGINT)
            _, errors = run.communicate(timeout=60)
        assert errors in ("", "copyscope: interrupted\n")
        assert run.returncode in (0, entry.INTERRUPTED, -signal.SIGINT)


FAULT = """
import sys
from copyscope.commands import __main__
from copyscope.commands import verbs
def fails(words):
    raise {error}
verbs.main = fails
sys.exit(__main__.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("verb", "status"), [("run", 1), ("diff", 2)])
def test_an_unexpected_error_is_one_line(verb: str, status: int) -> None:
    code = FAULT.format(error="AssertionError('a\\nb\\x1b[2J')")
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, verb], capture_output=True, text=True, timeout=30, check=False
    )
    begin, end = (
        "copyscope: a bug in copyscope: commands/__main__.py:",
        "AssertionError: a b␛[2J; please report it\n",
    )
    assert done.returncode == status and done.stdout == ""
    assert done.stderr.startswith(begin) and done.stderr.endswith(end) and done.stderr.count("\n") == 1

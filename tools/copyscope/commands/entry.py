# SPDX-License-Identifier: GPL-2.0-only
"""Functions that all commands share: one-line messages, exit statuses, signals, and the check for root."""

import argparse
import contextlib
import errno
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from copyscope.base import paths
from copyscope.base.arguments import UsageParser
from copyscope.base.errors import AbandonedError, MissingRecordError, RecordError, RunError, UsageError
from copyscope.base.spelling import one_line
from copyscope.machine.fingerprint import check_pid_namespace
from copyscope.machine.limits import check_limits
from copyscope.machine.topology import TopologyError
from copyscope.run.build import build_if_stale
from copyscope.taxonomy.taxonomy import TaxonomyError

# Exit statuses of every command.
FAILED = 1
USAGE = 2
INTERRUPTED = 130
# Signals that end a command as Ctrl-C does.
INTERRUPTING_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Interval in seconds between interrupts of a command that did not end.
INTERRUPT_INTERVAL_S = 0.2
# Type of an error with a file -> what the user can do about the error.
NEXT_STEPS: dict[type[OSError], str] = {
    FileNotFoundError: "check its name",
    IsADirectoryError: "choose a file in it",
    NotADirectoryError: "choose a directory",
}
DEFAULT_NEXT_STEP = "check space and permissions"
NO_MEMORY = "memory: not enough; free some, or measure less at once"
NESTED_TOO_DEEPLY = "input: nested too deeply; give a file that copyscope wrote"
ABANDONED = "ended by the third signal, before the measurement was saved"
# Names of the commands that run now. Messages begin with the first name, which the user typed. The other
# names are parts of that command: `copyscope crossover` runs a sweep.
_running_commands: list[str] = []


def run(
    command: str, job: Callable[[], int], interrupted: str = "interrupted", *, failure_status: int = FAILED
) -> int:
    """Run the job of a command and return its exit status. Every expected error becomes one line on stderr.

    command: name of the command for messages, such as `fleet query`; empty before it is known
    job: function that does the work of the command and returns the exit status
    interrupted: message after Ctrl-C, for which the exit status is 130
    failure_status: exit status after an error other than wrong usage (2) and errors that have their own
        status
    """
    handle_signals()
    _running_commands.append(command)
    try:
        return job()
    except (UsageError, TaxonomyError, MissingRecordError) as error:
        print_message(str(error))
        return USAGE
    except RunError as error:
        print_message(str(error))
        return failure_status if error.status == RunError.status else error.status
    except (TopologyError, RecordError) as error:
        print_message(str(error))
    except MemoryError:
        print_message(NO_MEMORY)
    except RecursionError:
        print_message(NESTED_TOO_DEEPLY)
    except OSError as error:
        print_message(_describe_os_error(error))
    except KeyboardInterrupt as interrupt:
        print_message(ABANDONED if isinstance(interrupt, AbandonedError) else interrupted)
        return INTERRUPTED
    finally:
        _running_commands.pop()
    return failure_status


def _describe_os_error(error: OSError) -> str:
    """Format an OS error as a message with the file, the error and the next step."""
    # Python's module loader raises ENOMEM as OSError when it lists a directory.
    if error.errno == errno.ENOMEM:
        return NO_MEMORY
    file = f"{error.filename}: " if error.filename is not None else ""
    return f"{file}{error.strerror or error}; {NEXT_STEPS.get(type(error), DEFAULT_NEXT_STEP)}"


def make_main(
    command: str,
    parser: Callable[[], UsageParser],
    job: Callable[[argparse.Namespace], int],
    interrupted: str = "interrupted",
    *,
    failure_status: int = FAILED,
) -> Callable[[list[str]], int]:
    """Return the main() of a command, which parses the arguments, runs the job and returns the exit status.

    command: name of the command for messages
    parser: function that returns the parser of the arguments
    job: function that gets the parsed arguments, does the work and returns the exit status
    interrupted: message after Ctrl-C, for which the exit status is 130
    failure_status: exit status after an error other than wrong usage and errors that have their own status
    """

    def main(argv: list[str]) -> int:
        return run(
            command, lambda: job(parser().parse_args(argv)), interrupted, failure_status=failure_status
        )

    return main


def require_root(command: str, argv: Sequence[str]) -> None:
    """Raise RunError if this process cannot measure. If it is not root, the message shows how to use sudo.

    argv: the arguments of the command
    """
    if os.geteuid() != 0:
        raise RunError(f"needs root to load BPF; run {shlex.join(['sudo', paths.command(), command, *argv])}")
    check_limits()
    check_pid_namespace()


def handle_signals() -> None:
    """Make some signals end the command as Ctrl-C does, so that it leaves no files or programs behind."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # set by __main__.py
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in INTERRUPTING_SIGNALS:
        # Under nohup(1) SIGHUP is ignored, and the run goes on.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Pass a signal to the current handler of SIGINT. The handler of asyncio.Runner cancels the tasks."""
    sigint_handler = signal.getsignal(signal.SIGINT)
    if not callable(sigint_handler):
        raise KeyboardInterrupt
    sigint_handler(number, frame)


@contextlib.contextmanager
def insistent_interrupts() -> Iterator[None]:
    """After the first Ctrl-C, raise KeyboardInterrupt repeatedly until the body of the `with` ends.

    Python drops an exception that is raised in a callback of the garbage collector or of a weak reference.
    Drawing libraries run such callbacks often.
    """

    interrupted = False

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        signal.setitimer(signal.ITIMER_REAL, INTERRUPT_INTERVAL_S)
        raise KeyboardInterrupt

    handlers = {number: signal.signal(number, interrupt) for number in (signal.SIGALRM, signal.SIGINT)}
    try:
        yield
    finally:
        if interrupted:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def is_part() -> bool:
    """Return True if the running command is a part of another one, such as the sweep of `crossover`."""
    return len(list(filter(None, _running_commands))) > 1


def build(*targets: str) -> None:
    """Build the outdated programs among `targets` (default: all programs). Raises RunError.

    Print one line if the build takes long.
    """
    build_if_stale(print_message, targets or ("artifacts",))


def print_message(text: str) -> None:
    """Print one line on stderr, after the name of the command: `copyscope run: ...`."""
    command = next(filter(None, _running_commands), "")
    print(one_line(f"{f'copyscope {command}'.rstrip()}: {text}"), file=sys.stderr)

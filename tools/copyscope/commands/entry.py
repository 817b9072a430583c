"""How every command ends: one line for what went wrong, and the exit status that is documented."""

import argparse
import errno
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType

from copyscope.arguments import UsageParser
from copyscope.errors import AbandonedError, RunError, UsageError
from copyscope.escaping import one_line
from copyscope.machine.fingerprint import check_pid_namespace
from copyscope.record.store import RecordError
from copyscope.run.build import build_if_stale
from copyscope.topology import TopologyError

FAILED = 1
USAGE = 2
INTERRUPTED = 130
# What to do about a file that cannot be read or written.
NEXT_STEPS: dict[type[OSError], str] = {
    FileNotFoundError: "check its name",
    IsADirectoryError: "choose a file in it",
    NotADirectoryError: "choose a directory",
}
NO_MEMORY = "memory: not enough: free some, or measure less at once"
DISTURBED = "check space and permissions"
GIVEN_UP = "ended by the third signal, before the measurement was saved"


def run(job: Callable[[], int], interrupted: str = "interrupted", *, failed: int = FAILED) -> int:
    """The status of a job, or of what stopped it: 2 wrong usage, 130 Ctrl-C, else `failed` or its own."""
    end_in_order()
    try:
        return job()
    except UsageError as error:
        say(str(error))
        return USAGE
    except RunError as error:
        say(str(error))
        return failed if error.status == RunError.status else error.status
    except (TopologyError, RecordError) as error:
        say(str(error))
    except MemoryError:
        say(NO_MEMORY)
    except RecursionError:
        say("input: nested too deeply: not a file that copyscope wrote")
    except OSError as error:
        if error.errno == errno.ENOMEM:
            # The loader of modules meets it as it lists a directory.
            say(NO_MEMORY)
            return failed
        where = f"{error.filename}: " if error.filename is not None else ""
        say(f"{where}{error.strerror or error}: {NEXT_STEPS.get(type(error), DISTURBED)}")
    except KeyboardInterrupt as asked:
        say(GIVEN_UP if isinstance(asked, AbandonedError) else interrupted)
        return INTERRUPTED
    return failed


def command(
    parser: Callable[[], UsageParser],
    job: Callable[[argparse.Namespace], int],
    interrupted: str = "interrupted",
    *,
    failed: int = FAILED,
) -> Callable[[list[str]], int]:
    """The main() of a command: its words read, its job done; the exit status is in the help of its parser."""
    return lambda argv: run(lambda: job(parser().parse_args(argv)), interrupted, failed=failed)


def need_root(verb: str, argv: Sequence[str]) -> None:
    """Raises RunError where nothing can be measured, with the command that can."""
    if os.geteuid() != 0:
        raise RunError(f"needs root to load BPF: {shlex.join(['sudo', 'copyscope', verb, *argv])}")
    check_pid_namespace()


def end_in_order() -> None:
    """SIGTERM, and SIGHUP of a terminal that goes, end it as Ctrl-C does: what was measured is kept."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # __main__.py
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # nohup(1) has SIGHUP ignored: its user wants the run to go on.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Ctrl-C has a handler of its own where tasks are to end in order (asyncio.Runner)."""
    of_ctrl_c = signal.getsignal(signal.SIGINT)
    if not callable(of_ctrl_c):
        raise KeyboardInterrupt
    of_ctrl_c(number, frame)


def build() -> None:
    """What is compiled is brought up to date; one line when that takes a while. Raises RunError."""
    build_if_stale(say)


def say(text: str) -> None:
    """One line on stderr."""
    print(one_line(f"copyscope: {text}"), file=sys.stderr)

# SPDX-License-Identifier: GPL-2.0-only
"""Program that bin/copyscope starts: `python3 -I -m copyscope.commands COMMAND [OPTIONS]`."""

import signal

if __name__ == "__main__":
    # Until commands/entry.py installs its handlers, Ctrl-C kills this process at once, without a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # bin/copyscope blocks SIGINT while Python starts.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

import gc
import os
import sys

from copyscope.base import process
from copyscope.base.spelling import one_line


def main(words: list[str]) -> int:
    """Run the command line `words`, and return the exit status once all output is written."""
    process.clean_environment(os.environ, is_root=os.geteuid() == 0)
    process.open_standard()
    try:
        from copyscope.commands import verbs  # noqa: PLC0415 (loading it may fail for lack of memory)

        status: str | int | None = verbs.main(words)
    except SystemExit as exit_request:  # --help
        status = exit_request.code
    except (ImportError, MemoryError, OSError, SystemError) as error:
        # Python raises SystemError after some failed allocations.
        status = report_load_error(error, words)
    except Exception as error:
        from copyscope.base.errors import describe  # noqa: PLC0415

        print(one_line(f"copyscope: {describe(error)}"), file=sys.stderr)
        status = failure_status(words)
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    return process.exit_status(int(status or 0))


def script() -> int:
    """Run the `copyscope` command installed by a wheel, and return its exit status.

    A wheel has no bin/copyscope, so this function checks that only root can change the code.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if os.geteuid() == 0:
        from copyscope.base import paths, trust  # noqa: PLC0415 (only root needs them)

        danger = trust.find_danger(str(paths.ROOT), more=(".",))
        if danger is not None:
            print(one_line(f"copyscope: {danger}"), file=sys.stderr)
            return 2
    return main(sys.argv[1:])


def report_load_error(error: Exception, words: list[str]) -> int:
    """Print one line on why a command could not be loaded, and return the exit status.

    error: exception that the import raised
    words: command line, which begins with the name of the command
    """
    reason, next_step = "there is not enough memory", "free some"
    if isinstance(error, ModuleNotFoundError):
        from copyscope.base import paths  # noqa: PLC0415 (loading it may fail for lack of memory)

        version = ".".join(map(str, sys.version_info[:2]))
        reason = str(error)
        next_step = "build first: sudo make deps && make"
        if paths.INSTALLED:
            next_step = f"install a copyscope that has packages for Python {version}"
    elif isinstance(error, ImportError):
        # The message of a shared library begins with its long path.
        reason, next_step = str(error).rpartition(": ")[2], "free some memory, or build again: make"
    print(f"copyscope: cannot be loaded: {reason}; {next_step}", file=sys.stderr)
    return failure_status(words)


def failure_status(words: list[str]) -> int:
    """Return the exit status of a failed command: 1, or 2 for `diff`, where 1 means a regression."""
    return 2 if words[:1] == ["diff"] else 1


if __name__ == "__main__":
    status = main(sys.argv[1:])
    # Without freeze() Python would search all objects for garbage before it exits, which takes 40 ms.
    gc.freeze()
    sys.exit(status)

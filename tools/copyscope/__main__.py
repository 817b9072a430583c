"""python3 -I -m copyscope VERB ...: from whole standard streams to the exit status."""

import signal

if __name__ == "__main__":
    # Ctrl-C ends us as any program, until there is something to be ended in order (commands/entry.py).
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # bin/copyscope has it wait until here.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

import gc
import os
import sys

from copyscope import environment, streams
from copyscope.escaping import one_line


def main(words: list[str]) -> int:
    """The exit status of a verb; its output is out."""
    environment.clean(os.environ, is_root=os.geteuid() == 0)
    streams.open_standard()
    try:
        from copyscope.commands.copyscope import main as front  # noqa: PLC0415 (there may be no memory for it)

        status: str | int | None = front(words)
    except SystemExit as ended:  # --help
        status = ended.code
    except (ImportError, MemoryError, OSError, SystemError) as error:
        # SystemError: what Python makes of some allocations that fail.
        status = not_loaded(error, words)
    except Exception as error:
        from copyscope.errors import describe  # noqa: PLC0415

        print(one_line(f"copyscope: {describe(error)}"), file=sys.stderr)
        status = failed(words)
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    return streams.end(int(status or 0))


def script() -> int:
    """The command of a wheel: no bin/copyscope has looked whose files these are."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if os.geteuid() == 0:
        from copyscope import paths, trust  # noqa: PLC0415 (only root's)

        danger = trust.find_danger(str(paths.ROOT), more=(".",))
        if danger is not None:
            print(one_line(f"copyscope: {danger}"), file=sys.stderr)
            return 2
    return main(sys.argv[1:])


def not_loaded(error: Exception, words: list[str]) -> int:
    """One line for a verb that cannot be loaded, and its status: of diff 1 is a regression."""
    why, then = "there is not enough memory", "free some"
    if isinstance(error, ModuleNotFoundError):
        from copyscope import paths  # noqa: PLC0415 (there may be no memory for it)

        version = ".".join(map(str, sys.version_info[:2]))
        installed = f"install a copyscope that has packages for Python {version}"
        why, then = str(error), installed if paths.INSTALLED else "build first: sudo make deps && make"
    elif isinstance(error, ImportError):
        # Without the path of a library, which is long.
        why, then = str(error).rpartition(": ")[2], "free some memory, or build again: make"
    print(f"copyscope: cannot be loaded: {why}: {then}", file=sys.stderr)
    return failed(words)


def failed(words: list[str]) -> int:
    """The exit status of what failed: 1 of diff says that something got worse."""
    return 2 if words[:1] == ["diff"] else 1


if __name__ == "__main__":
    status = main(sys.argv[1:])
    # Python looks for garbage in all that there is before it ends: 40 ms.
    gc.freeze()
    sys.exit(status)

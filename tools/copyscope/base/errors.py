# SPDX-License-Identifier: GPL-2.0-only
"""Exceptions of copyscope, and functions that write their messages.

A message is one line of the form `object: problem; next step`. The object is a file, a host, or an option as
it was typed: `--topology token-ring: unknown topology; choose veth or loopback`. The command prints its own
name before the message (commands/entry.py).
"""

import errno
import os
import re
import shlex
import sys

from copyscope.base import paths

# Distribution package that contains a program, by the name of the program.
PACKAGE_OF_PROGRAM = {
    "ip": "iproute2",
    "ethtool": "ethtool",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "ssh": "openssh-client",
    "perf": "perf",
}
# Extra of pyproject.toml -> its packages in Debian, if Debian has all of them, and on PyPI.
DEBIAN_PACKAGES = {"report": "python3-matplotlib", "serve": "python3-prometheus-client"}
PYTHON_PACKAGES = {
    "report": ("matplotlib", "numpy"),
    "fleet": ("duckdb",),
    "serve": ("prometheus-client",),
}
BUILD_ADVICE = "install copyscope again" if paths.INSTALLED else "build it with make"
# Advice for ENOMEM and EAGAIN, which any system call may return whatever the user asked for.
MEMORY_ADVICE = "free memory, or raise the limit of the cgroup that copyscope runs in (memory.max)"
PROCESS_ADVICE = (
    "end other processes, or raise pids.max of the cgroup that copyscope runs in (ulimit -u of its user)"
)
# Part of the path of every file of the package, as it appears in a traceback.
PACKAGE_FOLDER = "/tools/copyscope/"


def out_of_range(option: str, value: object, least: object, most: object) -> str:
    """Return the message for a value out of range: `--gate 0: out of range; choose 1 to 1000000`."""
    return f"{option} {value}: out of range; choose {least} to {most}"


def how_to_install(program: str) -> str:
    """Return the advice for a missing system program, such as `install iproute2`."""
    return f"install {PACKAGE_OF_PROGRAM.get(program, program)}" + (
        "" if paths.INSTALLED else " (tools/deps.sh run)"
    )


def how_to_install_for_simulation(package: str) -> str:
    """Return the advice for a missing package that only `copyscope simulate` needs."""
    return f"install {package}" if paths.INSTALLED else "install it: sudo tools/deps.sh simulate"


def how_to_install_extra(extra: str) -> str:
    """Return the advice for missing Python libraries of an optional extra, such as `report`.

    The advice never says `pip install copyscope`, because another project may own this name on PyPI.
    """
    if not paths.INSTALLED:
        return f"make .venv/.ready-{extra}"
    if paths.ROOT != paths.PACKAGE and extra in DEBIAN_PACKAGES:
        return f"{'apt install' if paths.ROOT == paths.DEBIAN_ROOT else 'install'} {DEBIAN_PACKAGES[extra]}"
    pip = [sys.executable, "-m", "pip", "install"]
    if paths.ROOT != paths.PACKAGE:  # Debian lets pip write to a directory of its own only (PEP 668)
        pip = ["python3", "-m", "pip", "install", "--target", str(paths.ROOT / "tools")]
    return shlex.join((*pip, *PYTHON_PACKAGES[extra]))


def why_not_started(program: str, error: OSError) -> str:
    """Return a message about a program that failed to start, with advice.

    Example: `setpriv: No such file or directory; install util-linux`.
    """
    step = {errno.ENOMEM: MEMORY_ADVICE, errno.EAGAIN: PROCESS_ADVICE}.get(error.errno or 0)
    if step is None:
        step = BUILD_ADVICE if "/" in program else how_to_install(program)
    return f"{program}: {error.strerror}; {step}"


def add_memory_advice(message: str) -> str:
    """Return an error message of a copyscope program, with advice if memory could not be allocated."""
    return f"{message}; {MEMORY_ADVICE}" if os.strerror(errno.ENOMEM) in message else message


def why_not_executed(stderr: str) -> str | None:
    """Return a message with advice if nsenter or setpriv could not execute its program, or None.

    `stderr`: the output of nsenter or setpriv on standard error.
    """
    match = re.search(r"failed to execute (\S+): (.+)", stderr)
    if match is None:
        return None
    program, reason = match[1], match[2].strip()
    step = BUILD_ADVICE if "/" in program else how_to_install(program)
    return f"{program}: {reason}; {step}"


class UsageError(Exception):
    """The command line or an input file is wrong. Exit status 2."""


class MachineError(UsageError):
    """The options are valid, but this machine cannot run them. Exit status 2.

    A sweep skips a point that raises this error, and continues.
    """


class RunError(Exception):
    """The command failed or ended early. Exit status 1."""

    status = 1


class RecordError(Exception):
    """A record cannot be read or written; the message is one line that names the file."""


class MissingRecordError(RecordError):
    """The file of a record does not exist. Exit status 2, as for every missing input."""


class AbandonedError(KeyboardInterrupt):
    """The user pressed Ctrl-C repeatedly, so copyscope exits without a report."""


def describe(error: Exception) -> str:
    """Describe an exception in one line. For an unexpected one, add the file and line that raised it."""
    if type(error).__module__.startswith("copyscope."):
        return str(error)
    location, traceback = "", error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if PACKAGE_FOLDER in file:
            location = f"{file.rpartition(PACKAGE_FOLDER)[2]}:{traceback.tb_lineno}: "
        traceback = traceback.tb_next
    return f"a bug in copyscope: {location}{type(error).__name__}: {error or 'no message'}; please report it"


class NotStartedError(RunError):
    """A command was not found (exit status 127) or cannot be executed (126), as sh(1) has it."""

    def __init__(self, command: str, error_number: int) -> None:
        absent = error_number == errno.ENOENT
        step = "check its name" if absent else "name an executable program"
        super().__init__(f"{command}: could not be started ({os.strerror(error_number)}); {step}")
        self.status = 127 if absent else 126

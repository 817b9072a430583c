# SPDX-License-Identifier: GPL-2.0-only
"""Environment and standard streams of this process."""

import io
import os
import sys
from collections.abc import Mapping, MutableMapping
from typing import TextIO

from copyscope.base.spelling import one_line

# As root, copyscope passes only harmless environment variables on to the programs that it starts.
#
# Variables that choose programs, libraries or Python modules could make root run code of the caller. sudo
# removes most of them; `sudo -E`, a shell of root and a container do not. A command that copyscope watches
# runs as the caller and gets the original environment back.

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Harmless environment variables: language, terminal, names of the caller, directories for files.
KEPT_VARIABLES = (
    *("COLORTERM", "COLUMNS", "HOME", "LANG", "LANGUAGE", "LINES", "LOGNAME", "NO_COLOR"),
    *("SUDO_GID", "SUDO_UID", "SUDO_USER", "TERM", "TMPDIR", "TZ", "USER"),
    # Proxies are harmless because every download is checked against a hash or a signature.
    *("all_proxy", "http_proxy", "https_proxy", "no_proxy"),
    *("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
KEPT_PREFIXES = ("LC_", "COPYSCOPE_")
# Prefix of the new name of a hidden variable, so that environment_of_caller() can restore it.
CALLER_PREFIX = "COPYSCOPE_CALLERS_"
TERMINAL_SIZE_VARIABLES = ("COLUMNS", "LINES")


def clean_environment(environment: MutableMapping[str, str], *, is_root: bool) -> None:
    """Remove invalid terminal sizes from an environment in place; as root, also hide harmful variables."""
    callers = without_invalid_sizes(environment_of_caller(environment))
    environment.clear()
    environment.update(environment_of_root(callers) if is_root else callers)


def environment_of_root(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for programs that run as root. Harmful names get CALLER_PREFIX."""
    roots = {"PATH": PATH}
    for name, value in environment_of_caller(environment).items():
        if name in KEPT_VARIABLES or name.startswith(KEPT_PREFIXES):
            roots[name] = value
        else:
            roots[CALLER_PREFIX + name] = value
    return roots


def environment_of_caller(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for programs that run as the caller. Reverses environment_of_root()."""
    # Prefixed variables come last, so that the PATH of the caller replaces the PATH of root.
    pairs = sorted(environment.items(), key=lambda pair: pair[0].startswith(CALLER_PREFIX))
    return {name.removeprefix(CALLER_PREFIX): value for name, value in pairs}


def without_invalid_sizes(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without invalid COLUMNS and LINES, because libraries read them, too."""
    return {
        name: value
        for name, value in environment.items()
        if name not in TERMINAL_SIZE_VARIABLES
        or (value.isascii() and value.isdecimal() and 0 < len(value) <= 4)
    }


# Writing to standard output and standard error never raises an exception.
#
# A failing output must not end a measurement. A reader that closed the pipe (`| head`) is no failure. After
# any other error, such as a full disk, the command prints one line at its end, and its status is not 0.


class Outlet(io.FileIO):
    """Output file that remembers the first write error, and discards all data after it.

    `failure`: the first error, or None.
    """

    failure: OSError | None = None

    def write(self, data: object) -> int:
        """Write data and return its size, also if the data is discarded."""
        size = len(memoryview(data))  # type: ignore[arg-type]
        if self.failure is None:
            try:
                return super().write(data)  # type: ignore[arg-type]
            except OSError as error:
                self.failure = error
        return size


def open_standard() -> None:
    """Replace sys.stdout and sys.stderr with streams that never raise an error.

    A closed standard descriptor (`>&-`) is opened as /dev/null; otherwise the next opened file would get its
    number.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = _open(1, sys.stdout)
    sys.stderr = _open(2, sys.stderr)


def _open(number: int, old_stream: TextIO | None) -> TextIO:
    """Return a stream that writes to descriptor `number` through an Outlet.

    `old_stream`: the stream that is replaced; the new stream has its encoding.
    """
    outlet = Outlet(number, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(outlet),
        encoding=old_stream.encoding if old_stream is not None else "utf-8",
        errors="backslashreplace",  # print \u2192 on a terminal that cannot show the character
        line_buffering=number == 2 or outlet.isatty(),
    )


def write_error(stream: TextIO) -> OSError | None:
    """Return the first error from writing to a stream that open_standard() made, or None."""
    outlet = getattr(getattr(stream, "buffer", None), "raw", None)
    return outlet.failure if isinstance(outlet, Outlet) else None


def reader_has_gone(stream: TextIO) -> bool:
    """Return True if the reader of a stream has closed the pipe."""
    return isinstance(write_error(stream), BrokenPipeError)


def output_error(stream: TextIO) -> OSError | None:
    """Flush a stream and return the error that made its output incomplete.

    Return None if all output was written, or if the reader closed the pipe.
    """
    stream.flush()
    return None if reader_has_gone(stream) else write_error(stream)


def is_utf8(stream: TextIO) -> bool:
    """Return True if a stream encodes its text as UTF-8."""
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


def exit_status(status: int) -> int:
    """Return the exit status of a command: `status`, or 1 if its output could not be written completely."""
    error = output_error(sys.stdout)
    if error is None:
        return status
    message = f"copyscope: standard output: {error.strerror}; the output is incomplete"
    print(one_line(message), file=sys.stderr)
    return status or 1

"""Standard output and standard error, whatever they are connected to.

What happens to what is printed must not happen to what is measured: writing here never raises. A reader that
went away (`| head`) wanted no more, and that is no failure; of any other reason, such as a full disk, the
command says one line at its end, and its status is not 0.
"""

import io
import os
import sys
from typing import TextIO

from copyscope.escaping import one_line


class Outlet(io.FileIO):
    """A descriptor that takes everything, and remembers why it could not pass it on."""

    failure: OSError | None = None

    def write(self, data: object) -> int:
        size = len(memoryview(data))  # type: ignore[arg-type]
        if self.failure is None:
            try:
                return super().write(data)  # type: ignore[arg-type]
            except OSError as error:
                self.failure = error
        return size


def open_standard() -> None:
    """Replace both streams; a closed descriptor (`>&-`) becomes /dev/null, lest a file takes its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = _open(1, sys.stdout)
    sys.stderr = _open(2, sys.stderr)


def _open(number: int, before: TextIO | None) -> TextIO:
    outlet = Outlet(number, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(outlet),
        encoding=before.encoding if before is not None else "utf-8",
        errors="backslashreplace",  # a terminal that has no such letter is no reason to fail
        line_buffering=number == 2 or outlet.isatty(),
    )


def failure(stream: TextIO) -> OSError | None:
    """Why nothing arrives at a stream of open_standard() any more."""
    outlet = getattr(getattr(stream, "buffer", None), "raw", None)
    return outlet.failure if isinstance(outlet, Outlet) else None


def reader_has_gone(stream: TextIO) -> bool:
    """It is not read any more: what goes on for its sake alone may end."""
    return isinstance(failure(stream), BrokenPipeError)


def incomplete(stream: TextIO) -> OSError | None:
    """Why a reader that is still there has not got all of it; None: it has, or there is none."""
    stream.flush()
    return None if reader_has_gone(stream) else failure(stream)


def is_utf8(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


def end(status: int) -> int:
    """The exit status of a command that ends with `status`, once its output is out."""
    lost = incomplete(sys.stdout)
    if lost is None:
        return status
    why = f"copyscope: standard output: {lost.strerror}: what was printed is not complete there"
    print(one_line(why), file=sys.stderr)
    return status or 1

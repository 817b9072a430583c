"""Where in its source a place of a program is, by addr2line of binutils, where there is debug information.

Anybody may have made the file, and its debug information is large: nobody's process reads it, with limits of
time and of memory.
"""

import re
from collections.abc import Iterator, Sequence
from io import FileIO

from copyscope.asking import ask
from copyscope.errors import RunError
from copyscope.topology.workload_user import WorkloadUser

MEMORY_BYTES = 1 << 31
NOBODY = WorkloadUser(65534, 65534, known=False)
UNKNOWN = "??"
# `main.c:12 (discriminator 3)`
PLACE = re.compile(r"(?P<source>.+:[1-9]\d*)(?: \(discriminator \d+\))?")


def find(file: FileIO, addresses: Sequence[int], limit_s: float) -> dict[int, tuple[str | None, str | None]]:
    """(function, `FILE:LINE`) of each that is known; of what was inlined there, where that was."""
    asked = ("prlimit", f"--as={MEMORY_BYTES}", "addr2line", "-aCfi", "-e", "/proc/self/fd/0")
    try:
        answer = ask((*NOBODY.argv(), *asked, *map(hex, addresses)), reads=file.fileno(), limit_s=limit_s)
    except (OSError, RunError):  # without it a caller has its name
        return {}
    return dict(parse(answer.text))


def parse(text: str) -> Iterator[tuple[int, tuple[str | None, str | None]]]:
    """Of each address its line, then two of each function: the innermost first, the last is not inlined."""
    for block in re.split(r"^(?=0x[0-9a-f]+$)", text, flags=re.MULTILINE)[1:]:
        address, *lines = block.splitlines()
        if len(lines) >= 2:
            name, place = lines[-2], PLACE.fullmatch(lines[-1])
            source = None if place is None or place["source"].startswith(UNKNOWN) else place["source"]
            yield int(address, 16), (None if name == UNKNOWN else name, source)

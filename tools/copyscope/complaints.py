"""What a program writes to its standard error, however much that is: its beginning and its end."""

import threading
from typing import IO

from copyscope.units import format_bytes

EACH_MAX_BYTES = 32 << 10
# A program that has ended has left no more than a pipe holds; what it started may hold the pipe for ever.
READ_S = 1.0


class Complaints:
    """Read until it ends: the program never waits for that, and fills neither a disk nor our memory."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._first, self._last, self._left_out_bytes = b"", b"", 0
        self._reader = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            while chunk := stream.read(1 << 16):
                room = EACH_MAX_BYTES - len(self._first)
                self._first += chunk[:room]
                end = self._last + chunk[room:]
                self._last = end[-EACH_MAX_BYTES:]
                self._left_out_bytes += len(end) - len(self._last)

    def lines(self) -> list[str]:
        """What it said so far, of a program that has ended all; the last line says how much was left out."""
        self._reader.join(READ_S)
        cut = self._left_out_bytes
        said = (self._first + b"\n" * bool(cut) + self._last).decode(errors="replace").strip().splitlines()
        if cut:
            said.append(f"({format_bytes(cut)} before it left out) {said.pop() if said else ''}")
        return said

"""What a command prints while the terminal shows something else: into a file, to be shown afterwards."""

import os
import sys
import tempfile
from typing import Literal

# Where a command prints: as we do, to our stderr (stdout is taken), or into a file (the screen is taken).
Output = Literal["own", "stderr", "kept"]
CHUNK_BYTES = 1 << 16


class Printed:
    """One file for stdout and stderr of the command: in the order in which it wrote."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - ends with the process
        self._shown_bytes = 0

    def fileno(self) -> int:
        """Where the command prints."""
        return self._file.fileno()

    def show(self) -> None:
        """What was not shown yet, on our stderr."""
        # Read at an offset of our own: the file's is the command's.
        while chunk := os.pread(self._file.fileno(), CHUNK_BYTES, self._shown_bytes):
            self._shown_bytes += len(chunk)
            sys.stderr.buffer.write(chunk)
        sys.stderr.flush()

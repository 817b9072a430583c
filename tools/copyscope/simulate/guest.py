"""One boot: QEMU from its start to its end, within time limits, and without a file on any disk.

What QEMU reads and writes are files in memory (memfd_create(2)) that it inherits, and it ends when we do,
however that is (child.dies_with_us). So nothing is left, not even by SIGKILL. Only what a failed guest said
on its console is kept, and named.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from copyscope.errors import RunError
from copyscope.files import saving
from copyscope.run.child import dies_with_us
from copyscope.simulate.qemu import Files

BOOT_S = 120.0
# A megabyte takes a tenth of a second; several at 1 MiB between two lines still are far from this.
SILENT_S = 180.0
PANIC = re.compile(r"(?:Kernel panic|BUG:|Oops|Unable to mount).*")
Say = Callable[[str], None]


class Memory:
    """A file in memory that a child process can open by name."""

    def __init__(self, name: str, content: bytes = b"") -> None:
        self.fd = os.memfd_create(name)
        at = 0
        while at < len(content):
            at += os.write(self.fd, content[at:])

    @property
    def path(self) -> str:
        """Its name in a process that has inherited it."""
        return f"/proc/self/fd/{self.fd}"

    def text(self) -> str:
        size = os.fstat(self.fd).st_size
        return os.pread(self.fd, size, 0).decode(errors="replace") if size else ""

    def close(self) -> None:
        os.close(self.fd)


class Guest:
    """The files of one boot; a context manager, which leaves none."""

    def __init__(self, image: bytes, initramfs: bytes) -> None:
        self._stack = contextlib.ExitStack()
        self.kernel = self._file("kernel", image)
        self.initramfs = self._file("initramfs", initramfs)
        self.console = self._file("console")
        self.symbols = self._file("symbols")
        self.counted = self._file("counted")
        self._errors = self._file("errors")

    @property
    def files(self) -> Files:
        """Their names, for QEMU."""
        return Files(self.kernel.path, self.initramfs.path, self.console.path, self.symbols.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _file(self, name: str, content: bytes = b"") -> Memory:
        made = Memory(name, content)
        self._stack.callback(made.close)
        return made

    def run(self, argv: Sequence[str], console: Path, on_line: Say) -> list[str]:
        """What the guest said until its end. Raises RunError, with what was on its console in that file."""
        inherited = (self.kernel, self.initramfs, self.console, self.symbols, self.counted)
        try:
            process = subprocess.Popen(
                [*dies_with_us(), *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors.fd,
                pass_fds=[memory.fd for memory in inherited],
                # Ctrl-C is for us, and we then end it.
                start_new_session=True,
            )
        except OSError as error:
            raise RunError(f"{argv[0]}: {error.strerror}: the guest could not be started") from error
        try:
            return self._listen(process, on_line)
        except RunError as error:
            raise RunError(f"{error}{self._keep(console)}") from None
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def _listen(self, process: subprocess.Popen[bytes], on_line: Say) -> list[str]:
        assert process.stdout is not None
        pending, lines = b"", list[str]()
        until = time.monotonic() + BOOT_S
        while True:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                where = f"after `{lines[-1][:60]}`" if lines else "before its first word"
                limit = SILENT_S if lines else BOOT_S
                raise RunError(f"guest: silent for {limit:.0f} s {where}: ended")
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                break
            *whole, pending = (pending + chunk).split(b"\n")
            for raw in whole:
                line = raw.decode(errors="replace")
                if line.startswith("failed "):
                    raise RunError(f"guest: {line.removeprefix('failed ')}")
                lines.append(line)
                on_line(line)
            if whole:
                until = time.monotonic() + SILENT_S
        self._check_end(process, lines)
        return lines

    def _check_end(self, process: subprocess.Popen[bytes], lines: Sequence[str]) -> None:
        try:
            status = process.wait(BOOT_S)
        except subprocess.TimeoutExpired:
            raise RunError("guest: QEMU does not end") from None
        said = self._errors.text().strip().splitlines()
        # The plugin says why it does not load; QEMU then, that it does not.
        said = [line for line in said if line.startswith("simulator: ")] or said
        if status != 0:
            how = f"ended with status {status}" if status > 0 else f"was killed by signal {-status}"
            raise RunError(f"QEMU: {how}" + (f": {said[-1]}" if said else ""))
        if not lines or lines[-1] != "end":
            panic = PANIC.search(self.console.text())
            raise RunError(f"guest: {panic[0].strip() if panic else 'ended before its work was done'}")

    def _keep(self, console: Path) -> str:
        said = self.console.text()
        if not said.strip():
            return ""
        try:
            saving.save(console, said.encode())
        except OSError as error:
            last = said.strip().splitlines()[-1]
            return f": its console cannot be kept ({error.strerror}); it ends with: {last}"
        return f": its console: {console}"

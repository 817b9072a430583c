"""One boot: QEMU from its start to its end, within time limits, and without a file on any disk.

What QEMU reads and writes are files in memory (memfd_create(2)) that it inherits, and it ends when we do,
however that is (child.dies_with_us). So nothing is left, not even by SIGKILL. Only what a failed guest said
on its console is kept, and named.
"""

import contextlib
import math
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Self

from copyscope.asking import held
from copyscope.errors import RunError
from copyscope.files import saving
from copyscope.run.child import dies_with_us
from copyscope.simulate.qemu import Files

BOOT_S = 120.0
# A megabyte takes a tenth of a second; several at 1 MiB between two lines still are far from this.
SILENT_S = 180.0
PANIC = re.compile(r"(?:Kernel panic|BUG:|Oops|Unable to mount).*")
# Where QEMU does not take the number of the plugin interface that its version says (qemu.API_NUMBERS).
OTHER_QEMU = "use another QEMU: 7.2 (Debian 12) and 10.0 (Debian 13) take it"
Say = Callable[[str], None]


class Memory:
    """A file in memory that a child process can open by name."""

    def __init__(self, name: str, content: bytes) -> None:
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
    """One boot, and its files; a context manager, which leaves none of it (the kernel is a kept file)."""

    def __init__(self, kernel: str, initramfs: bytes) -> None:
        self._stack = contextlib.ExitStack()
        self.kernel = kernel
        self.initramfs = self._file("initramfs", initramfs)
        self.console = self._file("console")
        self.symbols = self._file("symbols")
        self.counted = self._file("counted")
        self._errors = self._file("errors")
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self.said: list[str] = []
        self._until = math.inf

    @property
    def files(self) -> Files:
        """Their names, for QEMU."""
        return Files(self.kernel, self.initramfs.path, self.console.path, self.symbols.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """At any time, and again."""
        self._stack.close()

    def _file(self, name: str, content: bytes = b"") -> Memory:
        made = Memory(name, content)
        self._stack.callback(made.close)
        return made

    def run(self, argv: Sequence[str], console: Path, on_line: Say) -> list[str]:
        """What the guest said until its end. Raises RunError, with what was on its console in that file."""
        self.start(argv, console, on_line)
        while not wait([self]):
            pass
        return self.said

    def start(self, argv: Sequence[str], console: Path, on_line: Say) -> None:
        """As `run`; its end is waited for with `wait`."""
        self._keep_at, self._on_line = console, on_line
        inherited = (self.initramfs, self.console, self.symbols, self.counted)
        try:
            with held() as came:
                self._process = subprocess.Popen(
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
        self._stack.callback(self._end)
        if came:
            signal.raise_signal(came[0])
        self._until = time.monotonic() + BOOT_S

    def _end(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def fileno(self) -> int:
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def left_s(self) -> float:
        """How long it may still be silent."""
        return max(0.0, self._until - time.monotonic())

    def hear(self, *, ready: bool) -> bool:
        """Whether it has come to its end; `ready`: it has said something. Raises RunError."""
        try:
            return self._hear(ready)
        except RunError as error:
            raise RunError(f"{error}{self._keep()}") from None

    def _hear(self, ready: bool) -> bool:
        if not ready:
            where = f"after `{self.said[-1][:60]}`" if self.said else "before its first line"
            limit = SILENT_S if self.said else BOOT_S
            raise RunError(f"guest: silent for {limit:.0f} s {where}: ended")
        chunk = os.read(self.fileno(), 1 << 16)
        if not chunk:
            self._check_end()
            return True
        *whole, self._pending = (self._pending + chunk).split(b"\n")
        for raw in whole:
            line = raw.decode(errors="replace")
            if line.startswith("failed "):
                raise RunError(f"guest: {line.removeprefix('failed ')}")
            self.said.append(line)
            self._on_line(line)
            self._until = time.monotonic() + SILENT_S
        return False

    def _check_end(self) -> None:
        assert self._process is not None
        try:
            status = self._process.wait(BOOT_S)
        except subprocess.TimeoutExpired:
            raise RunError("guest: QEMU does not end") from None
        said = self._errors.text().strip().splitlines()
        # The plugin says why it does not load; QEMU then, that it does not.
        said = [line for line in said if line.startswith("simulator: ")] or said
        if status != 0:
            how = f"ended with status {status}" if status > 0 else f"was killed by signal {-status}"
            step = f": {OTHER_QEMU}" if said and "plugin requires" in said[-1] else ""
            raise RunError(f"QEMU: {how}" + (f": {said[-1]}" if said else "") + step)
        if self.said[-1:] != ["end"]:
            panic = PANIC.search(self.console.text())
            raise RunError(f"guest: {panic[0].strip() if panic else 'ended before its work was done'}")

    def _keep(self) -> str:
        said = self.console.text()
        if not said.strip():
            return ""
        try:
            saving.save(self._keep_at, said.encode())
        except OSError as error:
            last = said.strip().splitlines()[-1]
            return f": its console cannot be kept ({error.strerror}); it ends with: {last}"
        return f": its console: {self._keep_at}"


def wait(running: Collection[Guest]) -> list[Guest]:
    """Those of them that have come to their end, perhaps none yet. Raises RunError for one that fails."""
    ready = select.select(running, [], [], min(guest.left_s for guest in running))[0]
    late = [] if ready else [guest for guest in running if not guest.left_s]
    return [guest for guest in (*ready, *late) if guest.hear(ready=guest in ready)]

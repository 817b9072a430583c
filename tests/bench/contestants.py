# SPDX-License-Identifier: GPL-2.0-only
"""Started programs of a comparison, with their output and their CPU time by the same clock."""

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """Output, CPU time and number of sleeps of a program from start to end (getrusage(2))."""

    output: str
    cpu_s: float
    sleeps: int

    def less(self, start_up: "Ended") -> "Ended":
        """Subtract start and end of the program, because only sending is compared.

        The number of sleeps at start varies a little, so the result is at least 0.
        """
        return replace(self, cpu_s=self.cpu_s - start_up.cpu_s, sleeps=max(0, self.sleeps - start_up.sleeps))


class Program:
    """A started program; `ready` waits for a line on its stderr, `end` for its end."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = list(argv)
        # A file instead of a pipe, so that a program with much output never waits for a busy reader.
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in end())
        self._process = subprocess.Popen(
            self.argv, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.PIPE, text=True
        )

    @property
    def pid(self) -> int:
        """Pid of the program; taskset(1) and similar programs replace themselves by it."""
        return self._process.pid

    def ready(self, pattern: str) -> re.Match[str]:
        """Wait for a line on stderr that matches. Raises SystemExit with all output if it never comes."""
        assert self._process.stderr is not None
        lines = []
        for line in self._process.stderr:
            lines.append(line)
            if match := re.search(pattern, line):
                return match
        raise SystemExit(f"{' '.join(self.argv)}: ended before it was ready: {''.join(lines)}")

    def kill(self) -> None:
        """Kill a program that does not end by itself."""
        self._process.kill()
        self._process.communicate()
        self._output.close()

    def end(self) -> Ended:
        """Wait until the program exits. Raises SystemExit with its errors if it failed."""
        assert self._process.stderr is not None
        errors = self._process.stderr.read()
        _, status, used = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._output.seek(0)
        output = self._output.read()
        self._output.close()
        if self._process.returncode:
            raise SystemExit(f"{' '.join(self.argv)}: status {self._process.returncode}: {errors or output}")
        return Ended(output, used.ru_utime + used.ru_stime, used.ru_nvcsw)


def family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except FileNotFoundError:
        return [pid]
    return [pid, *(member for child in text.split() for member in family(int(child)))]

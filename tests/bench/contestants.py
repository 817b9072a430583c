"""Two programs against each other, their output and their CPU time, all by the same clock."""

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Ended:
    """What a program printed, its CPU time and how often it slept in its whole life (getrusage(2))."""

    output: str
    cpu_s: float
    sleeps: int

    def less(self, start_up: "Ended") -> "Ended":
        """Without what the program takes to start and to end: to send is what is compared.

        Its sleeps while it starts vary by a few: less than none are none.
        """
        return replace(self, cpu_s=self.cpu_s - start_up.cpu_s, sleeps=max(0, self.sleeps - start_up.sleeps))


class Program:
    """A started program; `ready` waits for a line on its stderr, `end` for its end."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = list(argv)
        # A file and not a pipe: whoever prints a lot must not be stopped by a reader that is busy.
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in end())
        self._process = subprocess.Popen(
            self.argv, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.PIPE, text=True
        )

    @property
    def pid(self) -> int:
        """Its process; taskset(1) and the like become what they start."""
        return self._process.pid

    def ready(self, pattern: str) -> re.Match[str]:
        """Wait for a line on stderr; raises SystemExit with all that was said when it never comes."""
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            if match := re.search(pattern, line):
                return match
        raise SystemExit(f"{' '.join(self.argv)}: ended before it was ready: {''.join(said)}")

    def kill(self) -> None:
        """End a program that would go on for ever."""
        self._process.kill()
        self._process.communicate()
        self._output.close()

    def end(self) -> Ended:
        """Wait for its end; a failure ends the benchmark with the program's own words."""
        assert self._process.stderr is not None
        said = self._process.stderr.read()
        _, status, used = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._output.seek(0)
        output = self._output.read()
        self._output.close()
        if self._process.returncode:
            raise SystemExit(f"{' '.join(self.argv)}: status {self._process.returncode}: {said or output}")
        return Ended(output, used.ru_utime + used.ru_stime, used.ru_nvcsw)

"""One of the two machines of a run, as it is spoken to: this one (Host), or another by ssh (far.py).

Its collector and its traffic are children here, driven by lines; a far one through ssh, which passes them on.
So nothing but the two programs runs there, and no time of its clock is compared with one of another.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from copyscope import paths
from copyscope.asking import LimitError, ask
from copyscope.errors import RunError
from copyscope.escaping import one_line
from copyscope.machine import elsewhere, fingerprint
from copyscope.places import HERE, Here, Place
from copyscope.topology.workload_user import WorkloadUser, invoking_user

# A guest in emulation, whose only CPU loads BPF programs meanwhile, took more than 30 s for `ip route get`.
COMMAND_S = 90.0
SAID_MAX = 120


class Host:
    """This machine."""

    near = True
    # What ssh said of it: the client's address and port, the server's.
    connection: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.name = HERE
        self.place: Place = Here()
        self.become = False
        self.programs = str(paths.OUTPUT)
        self.user: WorkloadUser = invoking_user()
        # Of the programs that reach it.
        self.environment: dict[str, str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def why_gone(self) -> str | None:
        """Why nothing that runs there answers any more; None: it is not the connection."""
        return None

    def argv(self, command: Sequence[str]) -> list[str]:
        """What is started here so that it runs there, as root."""
        return self.place.argv(command, become=self.become)

    def collector(self, words: Sequence[str]) -> list[str]:
        """Its argv; `words` are its options."""
        return self.argv([f"{self.programs}/collector", *words])

    def traffic(self, words: Sequence[str]) -> list[str]:
        """As a user without capabilities."""
        return self.argv([*self.user.argv(), f"{self.programs}/traffic", *words])

    def run(self, command: Sequence[str], next_step: str) -> str:
        """What a command printed there. Raises RunError that names the host, the cause and the next step."""
        try:
            done = ask(self.argv(command), limit_s=COMMAND_S, environment=self.environment)
        except LimitError:
            raise RunError(
                self.why_gone()
                or f"{self.name}: {command[0]}: no end within {COMMAND_S:g} s, or of its output: {next_step}"
            ) from None
        if done.status:
            said = done.complaint.splitlines() or [f"ended with status {done.status}"]
            cause = f"{self.name}: {command[0]}: {one_line(said[-1], SAID_MAX)}: {next_step}"
            raise RunError(self.why_gone() or cause)
        return done.text

    @contextmanager
    def _files(self, patterns: Sequence[str]) -> Iterator[Path]:
        """Those files of it in a directory here, as far as they are there."""
        text = self.run(
            ["sh", "-c", elsewhere.script(patterns)], "check that /proc and /sys are mounted there"
        )
        with tempfile.TemporaryDirectory(prefix="copyscope-") as directory:
            elsewhere.write(text, Path(directory))
            yield Path(directory)

    def machine(self) -> dict[str, Any]:
        """The fingerprint of it."""
        with self._files(elsewhere.FINGERPRINT) as root:
            found = fingerprint.describe(root=root, tools=None if self.near else {})
        found["reasons"]["steal_percent"] = "of two hosts together: machine_state.steal_ns"
        return found

    def load(self, own_pid: int) -> dict[str, Any]:
        """What its CPUs have done so far, and the process of ours there."""
        try:
            with self._files(("proc/stat", f"proc/{own_pid}/stat")) as root:
                return fingerprint.read_load(elsewhere.cpu_ns(root, own_pid), root=root)
        except RunError as error:
            return {"t_ns": time.monotonic_ns(), "own_ns": None, "cpus": None, "reason": str(error)}


def together(loads: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The loads of two hosts as one of a machine with the CPUs of both."""
    first = dict(loads[0])
    for key in ("cpus", "own_ns", "busy_ns", "softirq_ns", "steal_ns"):
        known = [load[key] for load in loads if load.get(key) is not None]
        if len(known) == len(loads):
            first[key] = sum(known)
        else:
            first.pop(key, None)
    first["cpus"] = first.get("cpus")
    first["reason"] = next((load["reason"] for load in loads if load["reason"]), None)
    return first

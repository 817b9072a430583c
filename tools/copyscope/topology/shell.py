"""Running the system's own network tools, with one-line errors that name the command and the next step."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from copyscope.asking import Answer, Asked, LimitError
from copyscope.errors import NO_MEMORY, NO_PROCESS, why_not_executed, why_not_started

# A guest in emulation, whose only CPU loads BPF programs meanwhile, took more than 30 s for `ip route get`.
LIMIT_S = 90.0


class TopologyError(RuntimeError):
    """One line: `what: object: reason: next step`."""


@dataclass(frozen=True)
class Command:
    """One program to run: its arguments, what it reads on stdin, and what to tell the user when it fails.

    about: the next step is for failures whose line or reason has this word; others have another cause.
    """

    argv: tuple[str, ...]
    next_step: str
    stdin: str = ""
    about: str = ""


# What the kernel or a tool says -> what to do, whatever was asked for.
CAUSES = (
    (r"Cannot allocate memory", NO_MEMORY),
    (r"Resource temporarily unavailable", NO_PROCESS),
    (
        r"Operation not permitted|Permission denied",
        "run as root with CAP_SYS_ADMIN and CAP_NET_ADMIN (in a container: --privileged)",
    ),
)
OTHERWISE = "copyscope doctor says what works on this machine"


def run(command: Command) -> str:
    """The standard output of one command; raises TopologyError when it is missing or fails."""
    return run_together([command])[0]


def run_together(commands: Sequence[Command]) -> list[str]:
    """Run independent commands at the same time; their outputs in order. The first failure is raised."""
    texts: list[str] = []
    for command, answer in zip(commands, _answers(commands), strict=True):
        if answer.status != 0:
            raise TopologyError(describe_failure(command, answer.status, answer.complaint))
        texts.append(answer.text)
    return texts


def _answers(commands: Sequence[Command]) -> list[Answer]:
    running: list[Asked] = []
    try:
        for command in commands:
            running.append(_start(command))
        return [asked.answer() for asked in running]
    except LimitError as error:
        raise TopologyError(f"topology: {error}") from None
    finally:
        for asked in running:  # nothing may outlive this call
            asked.end()


def _start(command: Command) -> Asked:
    try:
        return Asked(command.argv, said=command.stdin.encode(), limit_s=LIMIT_S)
    except OSError as error:
        raise TopologyError(f"topology: {why_not_started(command.argv[0], error)}") from None


def describe_failure(command: Command, status: int, stderr: str) -> str:
    """One line for a failed command. `ip -batch` says only `-:N`; the line itself is put in its place."""
    reason = "; ".join(line.strip() for line in stderr.splitlines() if line.strip())
    shown = shlex.join(command.argv)
    absent_program = why_not_executed(reason)
    if absent_program is not None:
        return f"topology: {absent_program}"
    # A kernel that loads no modules on demand (a guest, a container) has not made the device's module known.
    absent = re.search(r"Unknown device type", reason) and re.search(r" type (\w+)", command.stdin)
    if absent:
        return f"topology: {absent[1]}: unknown to this kernel: load its module (modprobe {absent[1]})"
    failed = re.search(r"Command failed -:(\d+)", reason)
    lines = command.stdin.splitlines()
    if failed and 0 < int(failed.group(1)) <= len(lines):
        reason = reason[: failed.start()].rstrip("; ")
        shown = f"{shown} ({lines[int(failed.group(1)) - 1]})"
    return f"topology: {shown}: {reason or f'exit status {status}'}: {_next_step(command, shown, reason)}"


def _next_step(command: Command, shown: str, reason: str) -> str:
    """By what was said; the command's own where that is about what it was asked for."""
    general = next((step for said, step in CAUSES if re.search(said, reason)), None)
    if general is not None:
        return general
    return command.next_step if command.about in f"{shown} {reason}" else OTHERWISE

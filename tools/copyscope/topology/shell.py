"""Running the system's own network tools, with one-line errors that name the command and the next step."""

import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass


class TopologyError(RuntimeError):
    """One line: `what: object: reason: next step`."""


@dataclass(frozen=True)
class Command:
    """One program to run: its arguments, what it reads on stdin, and what to tell the user when it fails."""

    argv: tuple[str, ...]
    next_step: str
    stdin: str = ""


PACKAGES = {
    "ip": "iproute2",
    "ethtool": "ethtool",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}


def run(command: Command) -> str:
    """The standard output of one command; raises TopologyError when it is missing or fails."""
    return run_together([command])[0]


def run_together(commands: Sequence[Command]) -> list[str]:
    """Run independent commands at the same time; their outputs in order. The first failure is raised."""
    running: list[subprocess.Popen[str]] = []
    try:
        for command in commands:
            running.append(_start(command))
        answers = [
            process.communicate(command.stdin) for command, process in zip(commands, running, strict=True)
        ]
    finally:
        for process in running:
            if process.poll() is None:  # only after an exception above: nothing may outlive this call
                process.kill()
                process.communicate()
    for command, process, (_, stderr) in zip(commands, running, answers, strict=True):
        if process.returncode != 0:
            raise TopologyError(describe_failure(command, process.returncode, stderr))
    return [stdout for stdout, _ in answers]


def _start(command: Command) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,  # Ctrl-C is for us to handle, not for half of a setup
        )
    except OSError as error:
        raise TopologyError(describe_missing(command.argv[0], error.strerror)) from None


def describe_missing(program: str, reason: str | None) -> str:
    package = PACKAGES.get(program, program)
    return f"topology: {program}: {reason}: install {package} (tools/deps.sh run)"


def describe_failure(command: Command, status: int, stderr: str) -> str:
    """One line for a failed command. `ip -batch` says only `-:N`; the line itself is put in its place."""
    reason = "; ".join(line.strip() for line in stderr.splitlines() if line.strip())
    shown = shlex.join(command.argv)
    unknown = re.search(r"failed to execute (\S+): No such file", reason)  # said by nsenter and setpriv
    if unknown:
        return describe_missing(unknown[1], "not found")
    # A kernel that loads no modules on demand (a guest, a container) has not made the device's module known.
    absent = re.search(r"Unknown device type", reason) and re.search(r" type (\w+)", command.stdin)
    if absent:
        return f"topology: {absent[1]}: unknown to this kernel: load its module (modprobe {absent[1]})"
    failed = re.search(r"Command failed -:(\d+)", reason)
    lines = command.stdin.splitlines()
    if failed and 0 < int(failed.group(1)) <= len(lines):
        reason = reason[: failed.start()].rstrip("; ")
        shown = f"{shown} ({lines[int(failed.group(1)) - 1]})"
    return f"topology: {shown}: {reason or f'exit status {status}'}: {command.next_step}"

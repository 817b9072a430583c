# SPDX-License-Identifier: GPL-2.0-only
"""Create network namespaces, run commands in a namespace, and choose the user that runs the traffic."""

import os
import pwd
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from copyscope.base.errors import MEMORY_ADVICE, PROCESS_ADVICE, why_not_executed, why_not_started
from copyscope.base.files import invoking_ids
from copyscope.base.programs import LimitError, ProgramOutput, StartedProgram, read_line
from copyscope.base.spelling import StderrReader, one_line

# Time limit of a command in seconds. An emulated guest needed more than 30 s for `ip route get` while its
# only CPU loaded BPF programs.
LIMIT_S = 90.0


class TopologyError(RuntimeError):
    """A topology cannot be made or read. The message is one line: `object: reason; next step`."""


@dataclass(frozen=True)
class NamespaceCommand:
    """A program to run: its arguments, its standard input, and the advice after a failure (`next_step`).

    about: word that the command line or the error message must contain for the advice to apply
    """

    argv: tuple[str, ...]
    next_step: str
    stdin: str = ""
    about: str = ""


# Pairs (pattern of an error message, advice that applies to every command).
ADVICE_BY_REASON = (
    (r"Cannot allocate memory", MEMORY_ADVICE),
    (r"Resource temporarily unavailable", PROCESS_ADVICE),
    (
        r"Operation not permitted|Permission denied",
        "run as root with CAP_SYS_ADMIN and CAP_NET_ADMIN (in a container: --privileged)",
    ),
)
DEFAULT_ADVICE = "copyscope doctor lists what works on this machine"


def run(command: NamespaceCommand) -> str:
    """Run a command and return its standard output. Raises TopologyError."""
    return run_together([command])[0]


def run_together(commands: Sequence[NamespaceCommand]) -> list[str]:
    """Run commands at the same time and return their outputs. Raises TopologyError for the first failure."""
    texts: list[str] = []
    for command, output in zip(commands, _outputs(commands), strict=True):
        if output.status != 0:
            raise TopologyError(describe_failure(command, output.status, output.complaint))
        texts.append(output.text)
    return texts


def _outputs(commands: Sequence[NamespaceCommand]) -> list[ProgramOutput]:
    """Run commands at the same time and return their outputs, also those of failed commands."""
    programs: list[StartedProgram] = []
    try:
        for command in commands:
            programs.append(_start(command))
        return [program.wait_for_output() for program in programs]
    except LimitError as error:
        raise TopologyError(str(error)) from None
    finally:
        for program in programs:
            program.end()


def _start(command: NamespaceCommand) -> StartedProgram:
    """Start a command. Raises TopologyError."""
    try:
        return StartedProgram(command.argv, stdin_data=command.stdin.encode(), limit_s=LIMIT_S)
    except OSError as error:
        raise TopologyError(why_not_started(command.argv[0], error)) from None


def describe_failure(command: NamespaceCommand, status: int, stderr: str) -> str:
    """Return a message of one line about a failed command. `stderr`: its standard error.

    `ip -batch` reports only the number of the failed line (`-:N`), so the message contains that line, too.
    """
    reason = "; ".join(line.strip() for line in stderr.splitlines() if line.strip())
    command_line = shlex.join(command.argv)
    missing_program = why_not_executed(reason)
    if missing_program is not None:
        return missing_program
    # A guest or container may be unable to load the kernel module of a device type on demand.
    device_type = re.search(r"Unknown device type", reason) and re.search(r" type (\w+)", command.stdin)
    if device_type:
        name = device_type[1]
        return f"{name}: this kernel does not know the device type; load its module (modprobe {name})"
    failed_line = re.search(r"Command failed -:(\d+)", reason)
    lines = command.stdin.splitlines()
    if failed_line and 0 < int(failed_line[1]) <= len(lines):
        reason = reason[: failed_line.start()].rstrip("; ")
        command_line = f"{command_line} ({lines[int(failed_line[1]) - 1]})"
    advice = _advice(command, command_line, reason)
    return f"{command_line}: {reason or f'exit status {status}'}; {advice}"


def _advice(command: NamespaceCommand, command_line: str, reason: str) -> str:
    """Return the advice for an error message (`reason`), otherwise the command's own advice if it applies."""
    general = next((advice for pattern, advice in ADVICE_BY_REASON if re.search(pattern, reason)), None)
    if general is not None:
        return general
    return command.next_step if command.about in f"{command_line} {reason}" else DEFAULT_ADVICE


# An anonymous network namespace exists exactly as long as this process.
#
# A holder process runs in the namespace and reads from a pipe. Only copyscope has the write end of the pipe.
# When copyscope exits, even by SIGKILL, the kernel closes the pipe, the holder exits, and the kernel removes
# the namespace with its links. Nothing is written to /run. The pipe is close-on-exec, so that programs
# started by subprocess do not keep it open. A plain os.fork() would.

# Script that holds a namespace. IPv6 is disabled in the namespace, because neighbour discovery and multicast
# packets would be counted with the measured bytes. A kernel without IPv6 does not have these files.
HOLDER_SCRIPT = """
for file in /proc/sys/net/ipv6/conf/all/disable_ipv6 /proc/sys/net/ipv6/conf/default/disable_ipv6; do
    if [ -w "$file" ]; then echo 1 >"$file"; fi
done
echo ready
exec cat
"""
HOLDER_ARGV = ("unshare", "--net", "sh", "-c", HOLDER_SCRIPT)
# Time in seconds that the holder gets to exit.
EXIT_TIMEOUT_S = 2.0


class Namespace:
    """An anonymous network namespace and its holder process, whose pid is `pid`."""

    def __init__(self) -> None:
        """Start the holder. Call wait_ready() before use; several namespaces can start at the same time."""
        try:
            self._holder = subprocess.Popen(
                HOLDER_ARGV,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,  # Ctrl-C must not remove the link while packets are still in flight
            )
        except OSError as error:
            raise TopologyError(why_not_started(HOLDER_ARGV[0], error)) from None
        self.pid = self._holder.pid
        assert self._holder.stderr is not None
        self._stderr = StderrReader(self._holder.stderr)

    def wait_ready(self) -> None:
        """Wait until the holder is in its namespace. Raises TopologyError if the holder could not make it."""
        assert self._holder.stdout is not None
        try:
            line = read_line(self._holder.stdout, LIMIT_S)
        except TimeoutError as error:
            raise TopologyError(
                f"unshare --net: {error}; run `unshare --net` by hand to find the cause"
            ) from None
        if line != b"ready\n":
            text = line.decode(errors="replace")
            output = f"the holder process printed {text!r}" if line else "the holder process ended"
            reason = one_line("; ".join(self._stderr.lines()) or output)
            raise TopologyError(
                f"unshare --net: {reason}; run as root with CAP_SYS_ADMIN and CAP_NET_ADMIN"
                " (in a container: --privileged)"
            )

    @property
    def path(self) -> str:
        return f"/proc/{self.pid}/ns/net"

    def enter(self) -> tuple[str, ...]:
        """Return the prefix that makes a command run in the namespace, as the current user."""
        return ("nsenter", f"--net={self.path}", "--")

    def close(self) -> None:
        """End the holder. The kernel removes the namespace when the last process in it has ended."""
        for pipe in (self._holder.stdin, self._holder.stdout):  # StderrReader closes stderr
            if pipe is not None:
                pipe.close()
        try:
            self._holder.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:  # the holder is stopped or traced
            self._holder.kill()
            self._holder.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def network_of(pid: int) -> int | None:
    """Return the inode of a process's network namespace, or None if it is our own or unreadable."""
    try:
        inode, own_inode = (Path(f"/proc/{name}/ns/net").stat().st_ino for name in (pid, "self"))
    except OSError:
        return None
    return None if inode == own_inode else inode


# The traffic runs as the invoking user, without capabilities.
#
# Real programs fail at RLIMIT_MEMLOCK. As root the traffic would not fail: the kernel does not count pinned
# zero-copy pages of a task with CAP_IPC_LOCK (mm_account_pinned_pages() in net/core/skbuff.c).

CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


@dataclass(frozen=True)
class WorkloadUser:
    """User as whom a program is run without capabilities."""

    uid: int
    gid: int
    has_passwd_entry: bool  # True if the supplementary groups of the user are known

    def argv(self) -> tuple[str, ...]:
        """Return the prefix that makes a command run as this user, without privileges.

        The command cannot regain privileges.
        """
        groups = "--init-groups" if self.has_passwd_entry else "--clear-groups"
        user = ("setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", groups)
        return (*user, "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--")


def invoking_user(environment: Mapping[str, str] | None = None) -> WorkloadUser:
    """Return the user who called sudo (SUDO_UID, SUDO_GID), or the current user if sudo was not used."""
    uid, gid = invoking_ids(environment) or (os.getuid(), os.getgid())
    return _user(uid, gid)


def _user(uid: int, gid: int) -> WorkloadUser:
    """Return the user with these ids, after checking for a passwd entry."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return WorkloadUser(uid, gid, has_passwd_entry=False)
    return WorkloadUser(uid, gid, has_passwd_entry=True)


def owner_of(tree: Path) -> WorkloadUser | None:
    """Return the owner of a directory, as whom root runs the programs in it.

    Return None if root is the owner, or if copyscope does not run as root.
    """
    status = tree.stat()
    if os.geteuid() != 0 or status.st_uid == 0:
        return None
    return _user(status.st_uid, status.st_gid)


def environment_of(user: WorkloadUser) -> dict[str, str]:
    """Return HOME, USER, LOGNAME and SHELL of a user, because sudo has set them to root's values."""
    if not user.has_passwd_entry:
        return {"HOME": "/", "USER": str(user.uid), "LOGNAME": str(user.uid)}
    entry = pwd.getpwuid(user.uid)
    return {
        "HOME": entry.pw_dir,
        "USER": entry.pw_name,
        "LOGNAME": entry.pw_name,
        "SHELL": entry.pw_shell or "/bin/sh",
    }


def find_privileges(status: str) -> list[str]:
    """Return the privileges of a process: non-empty capability sets, and NoNewPrivs if it is 0.

    `status`: text of /proc/PID/status.
    """
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    # A missing line counts as a privilege.
    sets = {name: fields.get(name, "?").strip() for name in CAPABILITY_SETS}
    privileges = [f"{name}={value}" for name, value in sets.items() if value.strip("0")]
    return privileges + ["NoNewPrivs=0"] * (fields.get("NoNewPrivs", "").strip() != "1")

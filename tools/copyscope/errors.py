"""How things fail: one line that names the object, the cause and the next step."""

import errno
import os
import re

from copyscope import paths

# Programs of the system, and the packages that have them.
PACKAGES = {
    "ip": "iproute2",
    "ethtool": "ethtool",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "ssh": "openssh-client",
    "perf": "perf",
}
BUILD = "install copyscope again" if paths.INSTALLED else "build it with make"
# Reasons that have nothing to do with what was asked for: whoever is refused so gets this advice.
NO_MEMORY = "free memory, or raise the limit of the cgroup that copyscope runs in (memory.max)"
NO_PROCESS = (
    "end other processes, or raise pids.max of the cgroup that copyscope runs in (ulimit -u of its user)"
)


def what_to_install(program: str) -> str:
    """The next step for a program of the system that is not there."""
    return f"install {PACKAGES.get(program, program)}" + ("" if paths.INSTALLED else " (tools/deps.sh run)")


def what_to_simulate_with(package: str) -> str:
    """The next step for a program that only a simulated machine needs."""
    return f"install {package}" if paths.INSTALLED else "install it: sudo tools/deps.sh simulate"


def what_to_add(extra: str) -> str:
    """The next step for libraries that only some verbs need."""
    if paths.INSTALLED:
        return f"pip install 'copyscope[{extra}]', or the distribution's packages of them"
    return f"make .venv/.ready-{extra}"


def why_not_started(program: str, error: OSError) -> str:
    """`setpriv: No such file or directory: install util-linux`: what could not be started, and what to do."""
    step = {errno.ENOMEM: NO_MEMORY, errno.EAGAIN: NO_PROCESS}.get(error.errno or 0)
    if step is None:
        step = BUILD if "/" in program else what_to_install(program)
    return f"{program}: {error.strerror}: {step}"


def with_memory(said: str) -> str:
    """What a program of ours said, with what to do where the kernel gave it no memory."""
    return f"{said}: {NO_MEMORY}" if os.strerror(errno.ENOMEM) in said else said


def why_not_executed(said: str) -> str | None:
    """What nsenter and setpriv say of a program that is not there, with what to do; None of anything else."""
    found = re.search(r"failed to execute (\S+): (.+)", said)
    if found is None:
        return None
    step = BUILD if "/" in found[1] else what_to_install(found[1])
    return f"{found[1]}: {found[2].strip()}: {step}"


PACKAGE = "/tools/copyscope/"


class UsageError(Exception):
    """What was asked makes no sense: exit status 2."""


class MachineError(UsageError):
    """What was asked makes sense, but not on this machine or with its limits: exit status 2, too.

    A sweep goes on without such a point.
    """


class RunError(Exception):
    """What was asked could not be done, or ended half-way: exit status 1."""

    status = 1


class AbandonedError(KeyboardInterrupt):
    """The user asked so often for the end that no report is wanted."""


def describe(error: Exception) -> str:
    """It in one line; of what nobody has foreseen with the place where it happened."""
    if type(error).__module__.startswith("copyscope."):
        return str(error)
    place, at = "", error.__traceback__
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        if PACKAGE in file:
            place = f"{file.rpartition(PACKAGE)[2]}:{at.tb_lineno}: "
        at = at.tb_next
    return f"a fault of copyscope: {place}{type(error).__name__}: {error or 'without a message'}: report it"


class NotStartedError(RunError):
    """A command that is not there (127, as sh says it) or that cannot be executed (126)."""

    def __init__(self, command: str, number: int) -> None:
        absent = number == errno.ENOENT
        step = "check its name" if absent else "give a program that may be executed"
        super().__init__(f"{command}: {os.strerror(number)}: it could not be started: {step}")
        self.status = 127 if absent else 126

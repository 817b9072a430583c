"""How things fail: one line that names the object, the cause and the next step."""

import errno
import os

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
    return f"a fault of copyscope: {place}{type(error).__name__}: {error or 'without a word'}: report it"


class NotStartedError(RunError):
    """A command that is not there (127, as sh says it) or that cannot be executed (126)."""

    def __init__(self, command: str, number: int) -> None:
        absent = number == errno.ENOENT
        step = "check its name" if absent else "give a program that may be executed"
        super().__init__(f"{command}: {os.strerror(number)}: it could not be started: {step}")
        self.status = 127 if absent else 126

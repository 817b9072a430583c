"""How things fail: one line that names the object, the cause and the next step."""


class UsageError(Exception):
    """What was asked makes no sense: exit status 2."""


class MachineError(UsageError):
    """What was asked makes sense, but not on this machine or with its limits: exit status 2, too.

    A sweep goes on without such a point.
    """


class RunError(Exception):
    """What was asked could not be done, or ended half-way: exit status 1."""

"""How things fail: one line that names the object, the cause and the next step."""


class UsageError(Exception):
    """What was asked makes no sense: exit status 2."""


class RunError(Exception):
    """What was asked could not be done, or ended half-way: exit status 1."""

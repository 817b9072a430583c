"""Which two ways are compared: two strategies, or two values of another setting. Pure."""

from collections.abc import Sequence

from copyscope.compare.settings import SETTINGS, settings
from copyscope.crossover.crossover import AXES, spelled
from copyscope.errors import UsageError
from copyscope.record.segments import Record

EXAMPLES = "--pair one_copy,uring_zc or --pair receiver=read,map"


def read(text: str, records: Sequence[Record]) -> tuple[str, tuple[str, str]]:
    """`[SETTING=]FIRST,SECOND` as (setting, pair). Raises UsageError.

    Without a name it is the setting of which some runs have the one value and some the other.
    """
    name, _, rest = text.rpartition("=")
    first, _, second = rest.partition(",")
    if not first or not second or first == second or "," in second:
        raise UsageError(f"--pair: {text!r}: two different ways are compared: for example {EXAMPLES}")
    known = [setting for setting in SETTINGS if setting not in AXES]
    if name and name not in known:
        raise UsageError(f"--pair: {name}: no setting: use one of {', '.join(known)}")
    runs = [settings(record) for record in records]
    values = {setting: {spelled(run[setting]) for run in runs} for setting in known}
    found = [s for s in ([name] if name else known) if {first, second} <= values[s]]
    if len(found) == 1:
        return found[0], (first, second)
    if found:
        given = " or ".join(f"{setting}={first},{second}" for setting in found)
        raise UsageError(f"--pair: {text}: values of {' and of '.join(found)}: say --pair {given}")
    there = "; ".join(f"{s} {', '.join(sorted(values[s]))}" for s in known if len(values[s]) > 1)
    raise UsageError(f"--pair: {text}: not both in these runs, which differ in: {there or 'nothing'}")

"""What /proc/stat said at both ends of a run, as a raw section. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

Record = dict[str, Any]
READINGS = ("busy_ns", "softirq_ns", "steal_ns", "own_ns")


def readings(loads: Sequence[Mapping[str, Any]], sides_ns: int) -> Record:
    """The raw section, from what machine.read_load() said at both ends and the sides' CPU time in between."""
    if len(loads) != 2:
        return unread("the run is not over")
    before, after = loads
    spent = {key: after[key] - before[key] if key in before and key in after else None for key in READINGS}
    span = {"wall_ns": after["t_ns"] - before["t_ns"], "cpus": after["cpus"]}
    section = {**span, **spent, "sides_ns": sides_ns}
    why = before["reason"] or after["reason"]
    reasons = {key: why for key, value in section.items() if value is None}
    return {
        **section,
        "reasons": reasons,
        "clock_before": before.get("clock"),
        "clock_after": after.get("clock"),
    }


def unread(why: str) -> Record:
    section = dict.fromkeys(("wall_ns", "cpus", *READINGS, "sides_ns"))
    return section | {"reasons": dict.fromkeys(section, why)}


def sides_cpu_ns(segments: Sequence[Any]) -> int:
    """CPU time of all sides from the begin of the first measured segment to the end of the last."""
    if not segments:
        return 0
    first, last = segments[0]["marks"][1], segments[-1]["marks"][2]
    return sum(int(last[side]["process_cpu_ns"] - first[side]["process_cpu_ns"]) for side in last)

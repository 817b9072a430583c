"""What two collectors said, each of its own host, as one answer. Pure.

Rows say whose side they are of. Only what is one for each host is told apart here: hooks by a key `side`, and
how long each host's timers were switched on.
"""

from collections.abc import Mapping
from typing import Any

from copyscope.grouping import gathered

Message = dict[str, Any]


def join(answers: Mapping[Any, Message]) -> Message:
    """The answers to the same question, as one; a side that gave none is not in it."""
    first = dict(next(iter(answers.values())))
    if "hooks" in first:
        first["hooks"] = [{**row, "side": side} for side, said in answers.items() for row in said["hooks"]]
    if first["event"] != "report":
        return first
    for key in ("bytes", "calls", "samples"):
        first[key] = [
            row for side, said in answers.items() for row in said[key] if row["side"] in (side, "other")
        ]
    first["sampler"] = _samplers({side: said["sampler"] for side, said in answers.items() if said["sampler"]})
    first["loss"] = _losses([said["loss"] for said in answers.values()])
    first["functions"] = None
    return first


def _samplers(of: Mapping[Any, Message]) -> Message | None:
    """One section: each side's bursts and time are its host's; those of everybody else are added up."""
    if not of:
        return None
    first = dict(next(iter(of.values())))
    events = [event for one in of.values() for event in one["events"]]
    first["events"] = [event for at, event in enumerate(events) if event not in events[:at]]
    enabled = {side: one["enabled_ns"] for side, one in of.items()}
    first["sides_enabled_ns"] = {**enabled, "other": sum(enabled.values())}
    first["bursts"] = None
    if all(one["bursts"] for one in of.values()):
        own = {side: one["bursts"][side] for side, one in of.items() if side in one["bursts"]}
        others = [one["bursts"]["other"] for one in of.values() if "other" in one["bursts"]]
        first["bursts"] = own | ({"other": _added(others)} if others else {})
    return first


def _added(bursts: list[Message]) -> Message:
    """Bursts of both hosts as if they had been one after the other on one."""
    keys = ("armed_ns", "count", "samples", "samples_squared", "cpu_ns", "difference_us_squared")
    sums = {
        key: sum(one[key] for one in bursts) if all(one.get(key) is not None for one in bursts) else None
        for key in keys
        if key in bursts[0]
    }
    return {**bursts[0], **sums}


def _losses(of: list[Message]) -> Message:
    """Counts add up; one that a kernel does not give is not known of both."""
    counts = gathered(pair for loss in of for pair in loss.items())
    unknown = {name: [one for one in given if not isinstance(one, int)] for name, given in counts.items()}
    return {name: unknown[name][0] if unknown[name] else sum(given) for name, given in counts.items()}

"""What two collectors said, each of its own host, as one answer. Pure.

Rows say whose side they are of. Only what is one for each host is told apart here: hooks by a key `side`.
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
    first["sampler"] = _samplers([said["sampler"] for said in answers.values() if said["sampler"]])
    first["loss"] = _losses([said["loss"] for said in answers.values()])
    first["functions"] = None
    return first


def _samplers(of: list[Message]) -> Message | None:
    """One section: the events of both hosts, and for how long the later one sampled."""
    if not of:
        return None
    events = [event for one in of for event in one["events"]]
    return {
        **of[0],
        "enabled_ns": max(one["enabled_ns"] for one in of),
        "events": [event for at, event in enumerate(events) if event not in events[:at]],
    }


def _losses(of: list[Message]) -> Message:
    """Counts add up; one that a kernel does not give is not known of both."""
    counts = gathered(pair for loss in of for pair in loss.items())
    unknown = {name: [one for one in given if not isinstance(one, int)] for name, given in counts.items()}
    return {name: unknown[name][0] if unknown[name] else sum(given) for name, given in counts.items()}

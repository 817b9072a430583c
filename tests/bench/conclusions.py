"""What a comparison comes to: on which side of its goal its interval lies. Pure."""

from typing import Any, Literal

from copyscope.plan import gate

Reached = Literal["met", "missed", "open"]
# Ours over the peer's goodput: the least that is asked for; of any other peer, as much as it has.
TRAFFIC_GOALS = {"bare": 0.98, "bare_uring_send": 0.98, "bare_uring_zc": 0.98}
# The least share of the goodput without instruments that is asked for, by message size.
OBSERVER_GOALS = {size_bytes: 1 - share for size_bytes, share in gate.GOALS}
# What copyscope run has attached by default, each in segments of its own; what timing each call costs is
# printed by each run, and is no goal.
OURS_WATCHING = ("ours", "ours_bytes")
# A watched program over the same alone: the least of its goodput or requests.
WATCH_GOAL = 0.95


def goal_of(name: str, made: dict[str, Any]) -> float | None:
    """What the ratio of one of the raw comparisons has to be in the benchmark `name`, if it has to be."""
    quantity, size_bytes = made["quantity"], made["factors"]["size_bytes"]
    if name == "watch":
        return WATCH_GOAL
    if quantity == "gbps" and name in ("traffic", "uring") and made["ours"] != "bare":
        return TRAFFIC_GOALS.get(made["peer"], 1.0)
    if quantity == "gbps" and name == "observer" and made["ours"] in OURS_WATCHING:
        return OBSERVER_GOALS.get(size_bytes)
    return None


def reached(made: dict[str, Any], goal: float | None) -> Reached | None:
    """On which side of its goal the interval lies; a value that equals it meets it."""
    if goal is None:
        return None
    sides = [value >= goal for value in (made["low"], made["high"])]
    return "met" if all(sides) else "open" if any(sides) else "missed"


def size(count: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count // factor} {unit}"
    return f"{count} B"

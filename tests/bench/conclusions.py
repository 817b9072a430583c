# SPDX-License-Identifier: GPL-2.0-only
"""Decide whether the interval of a comparison is above or below its goal. Pure."""

from typing import Any, Literal

from copyscope.plan import tier

Reached = Literal["met", "missed", "open"]
# Minimum ratio of our goodput to that of a tool; 1.0 for tools that are not listed.
TRAFFIC_GOALS = {"bare": 0.98, "bare_uring_send": 0.98, "bare_uring_zc": 0.98}
# Minimum share of the goodput without instruments, by message size.
OBSERVER_GOALS = {size_bytes: 1 - share for size_bytes, share in tier.GOALS}
# Instruments that copyscope run attaches by default, each in its own segments. Timing each call has no goal:
# each run prints its cost.
OURS_WATCHING = ("ours", "ours_bytes")
# Minimum ratio of the goodput or requests of a watched program to those without copyscope.
WATCH_GOAL = 0.95


def goal_of(name: str, comparison: dict[str, Any]) -> float | None:
    """Return the minimum ratio of a comparison in the benchmark `name`, or None if it has no goal."""
    quantity, size_bytes = comparison["quantity"], comparison["factors"]["size_bytes"]
    if name in ("watch", "sends"):
        return WATCH_GOAL
    if quantity == "gbps" and name in ("traffic", "uring") and comparison["ours"] != "bare":
        return TRAFFIC_GOALS.get(comparison["peer"], 1.0)
    if quantity == "gbps" and name == "observer" and comparison["ours"] in OURS_WATCHING:
        return OBSERVER_GOALS.get(size_bytes)
    return None


def reached(comparison: dict[str, Any], goal: float | None) -> Reached | None:
    """Return whether the interval is above its goal (met), below it (missed) or includes it (open)."""
    if goal is None:
        return None
    ends_met = [value >= goal for value in (comparison["low"], comparison["high"])]
    return "met" if all(ends_met) else "open" if any(ends_met) else "missed"


def size(count: int) -> str:
    """Spell a message size, such as 64 KiB."""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count // factor} {unit}"
    return f"{count} B"

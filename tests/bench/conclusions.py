"""What a comparison comes to: on which side of its goal its interval lies. Pure."""

from dataclasses import dataclass
from typing import Any, Literal

from copyscope.plan import gate

Reached = Literal["met", "missed", "open"]
# Ours over the peer's goodput: the least that is asked for; of any other peer, as much as it has.
TRAFFIC_GOALS = {"bare": 0.98, "bare_uring_send": 0.98, "bare_uring_zc": 0.98}
# The least share of the goodput without instruments that is asked for, by message size.
OBSERVER_GOALS = {size_bytes: 1 - share for size_bytes, share in gate.GOALS}
# What tools/profile.py has attached by default, each in segments of its own.
OURS_WATCHING = ("ours", "ours_calls", "ours_bytes")
# A watched program over the same alone: the least of its goodput or requests, the most of their p99.
WATCH_GOALS = {("gbps", None): 0.97, ("gbps", 65536): 0.99, ("requests", None): 0.97, ("p99_us", None): 1.05}
AT_MOST = ("p99_us",)


@dataclass(frozen=True)
class Conclusion:
    """A ratio and its interval; `goal`: where it has to be at least (or, with `at_most`, at most)."""

    ratio: float
    low: float
    high: float
    goal: float | None = None
    at_most: bool = False

    @property
    def reached(self) -> Reached | None:
        """Whether the goal is met; a single value that equals it meets it."""
        if self.goal is None:
            return None
        worst, best = (self.high, self.low) if self.at_most else (self.low, self.high)
        sides = [value <= self.goal if self.at_most else value >= self.goal for value in (worst, best)]
        return "met" if all(sides) else "open" if any(sides) else "missed"


def comparison(name: str, made: dict[str, Any]) -> Conclusion:
    """One of the raw comparisons, with the goal that it has in the benchmark `name`."""
    goal, quantity, size_bytes = None, made["quantity"], made["factors"]["size_bytes"]
    if quantity == "gbps" and name in ("traffic", "uring") and made["ours"] != "bare":
        goal = TRAFFIC_GOALS.get(made["peer"], 1.0)
    if quantity == "gbps" and name == "observer" and made["ours"] in OURS_WATCHING:
        goal = OBSERVER_GOALS.get(size_bytes)
    if name == "watch":
        goal = WATCH_GOALS.get((quantity, size_bytes), WATCH_GOALS[quantity, None])
    return Conclusion(made["ratio"], made["low"], made["high"], goal, quantity in AT_MOST)


def size(count: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count // factor} {unit}"
    return f"{count} B"

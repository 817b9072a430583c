"""What a run of a benchmark concludes, row by row, so that two runs can be compared. Pure.

A row is a ratio with its interval. What it concludes is on which side of 1 the interval lies, and whether a
goal that the row has is met, missed, or open because the interval holds it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from copyscope.plan import gate
from observer_losses import TIMES_LESS, Losses, losses
from own_numbers import GOALS as SECONDS_GOALS
from own_numbers import LABELS
from precision_numbers import OURS_FAST, PERF, needed
from samples import median

Sign = Literal["more", "less", "no difference"]
Reached = Literal["met", "missed", "open"]
# Ours over the peer's goodput: the least that is asked for; of any other peer, as much as it has.
TRAFFIC_GOALS = {"bare": 0.98}
# The least share of the goodput without instruments that is asked for, by message size.
OBSERVER_GOALS = {size_bytes: 1 - share for size_bytes, share in gate.GOALS}
# What tools/profile.py has attached by default, each in segments of its own.
OURS_WATCHING = ("ours", "ours_calls", "ours_bytes")
# A watched program over the same alone: the least of its goodput or requests, the most of their p99.
WATCH_GOALS = {("gbps", None): 0.97, ("gbps", 65536): 0.99, ("requests", None): 0.97, ("p99_us", None): 1.05}
AT_MOST = ("p99_us",)
VERDICT_ROW = "goodput while attached, seen from outside over what the records state"


@dataclass(frozen=True)
class Conclusion:
    """One row: its ratio and interval; `goal`: where it has to be at least (or, with `at_most`, at most)."""

    row: str
    ratio: float
    low: float
    high: float
    goal: float | None = None
    at_most: bool = False

    @property
    def sign(self) -> Sign:
        if self.low <= 1 <= self.high:
            return "no difference"
        return "more" if self.low > 1 else "less"

    @property
    def reached(self) -> Reached | None:
        """Whether the goal is met; a single value that equals it meets it."""
        if self.goal is None:
            return None
        worst, best = (self.high, self.low) if self.at_most else (self.low, self.high)
        sides = [value <= self.goal if self.at_most else value >= self.goal for value in (worst, best)]
        return "met" if all(sides) else "open" if any(sides) else "missed"

    def __str__(self) -> str:
        goal = f", goal {self.reached}" if self.goal is not None else ""
        return f"{self.ratio:.3f} ({self.low:.3f} to {self.high:.3f}): {self.sign}{goal}"


def conclusions(name: str, result: dict[str, Any]) -> list[Conclusion]:
    """All rows of one run of the benchmark `name`."""
    found = [comparison(name, made) for made in result["comparisons"]]
    found += _losses(result["comparisons"])
    found += _verdict(result["comparisons"])
    for item in result["raw"]:
        found += _hooks(item)
        found += _own(item)
        found += _precision(item)
    return found


def size(count: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count // factor} {unit}"
    return f"{count} B"


def cell(factors: dict[str, Any]) -> str:
    """64 KiB, 4 connections."""
    text = size(factors["size_bytes"])
    if "connections" in factors:
        text += f", {factors['connections']} connection{'s'[: factors['connections'] > 1]}"
    return text


def comparison(name: str, made: dict[str, Any]) -> Conclusion:
    """One line of the raw comparisons, with the goal that it has in the benchmark `name`."""
    row = f"{cell(made['factors'])}, {made['ours']} against {made['peer']}, {made['quantity']}"
    goal = None
    if made["quantity"] == "gbps" and name == "traffic" and made["ours"] != "bare":
        goal = TRAFFIC_GOALS.get(made["peer"], 1.0)
    if made["quantity"] == "gbps" and name == "observer" and made["ours"] in OURS_WATCHING:
        goal = OBSERVER_GOALS.get(made["factors"]["size_bytes"])
    if name == "watch":
        quantity = made["quantity"]
        goal = WATCH_GOALS.get((quantity, made["factors"]["size_bytes"]), WATCH_GOALS[quantity, None])
    at_most = made["quantity"] in AT_MOST
    return Conclusion(row, made["ratio"], made["low"], made["high"], goal, at_most)


def _losses(comparisons: list[dict[str, Any]]) -> Iterator[Conclusion]:
    """Our loss over the best peer's; the row does not name it, because it may be another next time."""
    for found in losses(comparisons):
        yield Conclusion(losses_row(found), *found.over_peer, 1 / TIMES_LESS, at_most=True)


def losses_row(found: Losses) -> str:
    return f"{cell(found.ours['factors'])}, loss of {found.ours['ours']} over that of the best peer"


def _verdict(comparisons: list[dict[str, Any]]) -> Iterator[Conclusion]:
    """What the records state against what is seen from outside: `less` is more cost than stated."""
    by_name = {made["ours"]: made for made in comparisons}
    if "its_attached" in by_name:
        seen, stated = by_name["attached"], by_name["its_attached"]
        yield Conclusion(
            VERDICT_ROW,
            seen["ratio"] / stated["ratio"],
            seen["low"] / stated["high"],
            seen["high"] / stated["low"],
        )


def _hooks(item: dict[str, Any]) -> Iterator[Conclusion]:
    """ns per event of each program over those of the plain tp_btf of the same kernel, which comes first."""
    known = [one for one in item.get("hooks", []) if "median_ns" in one]
    base = next((one for one in known if one["kind"] == "tp_btf"), None)
    for one in known:
        if base is None or one is base or base["low_ns"] <= 0:
            continue
        yield Conclusion(
            f"{item['where']}: {one['what']} on {one['target']} to tp_btf",
            one["median_ns"] / base["median_ns"],
            one["low_ns"] / base["high_ns"],
            one["high_ns"] / base["low_ns"],
        )


def _own(item: dict[str, Any]) -> Iterator[Conclusion]:
    """Seconds over the goal, with the least and the most: these repeats are few, and no interval."""
    if not isinstance(item.get("samples"), list):
        return
    for key, goal in SECONDS_GOALS.items():
        values = [sample[key] / goal for sample in item["samples"] if key in sample]
        if values:
            middle, least, most = median(values), min(values), max(values)
            yield Conclusion(f"{LABELS[key]}, over its goal", middle, least, most, 1.0, at_most=True)


def _precision(item: dict[str, Any]) -> Iterator[Conclusion]:
    """Seconds for 2 % of ours over those of perf record at the same frequency, by each run alone."""
    if "account" not in item:
        return
    ours, theirs = (needed(item["samples"].get(tool, [])) for tool in (OURS_FAST, PERF))
    if ours and theirs:
        row = f"{item['account']} ({item['impl']}), seconds for 2 %, {OURS_FAST} against {PERF}"
        yield Conclusion(row, ours[0] / theirs[0], ours[1] / theirs[2], ours[2] / theirs[1])

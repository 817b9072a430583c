"""How many of the copies that pass function hooks are timed: one in N; which N, and why. Pure.

Where a timed copy begins and ends its hooks look at the clock and the counters; the others are only counted.
So timing costs as many looks times what one costs, a part of the CPU time that the traffic takes without
instruments. N is the least that keeps this part under the goal. What counting costs is the same for each N:
the observer effect of the functions segments (overhead.py) has both.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from copyscope.units import format_whole_size

# Both sides' totals at the four marks of a segment (run/session.py).
Marks = Sequence[Mapping[str, Any]]

# What instruments may take at most: size of a message in bytes, share; between them by the logarithm.
GOALS = ((64, 0.05), (1024, 0.03), (65536, 0.01))
DEFAULT = 16
MOST = 1024
# Where a copy begins and where it ends.
LOOKS_PER_CALL = 2


@dataclass(frozen=True)
class Gate:
    """One copy in so many is timed, and the reason in one clause."""

    one_in: int
    why: str

    @property
    def reason(self) -> str:
        timed = "every copy" if self.one_in == 1 else f"1 copy in {self.one_in:,}"
        return f"{timed} timed: {self.why}"


@dataclass(frozen=True)
class Side:
    """What a message costs one side: its CPU time without instruments, and the looks of a timed one."""

    name: str
    cpu_ns: float
    looks: float


def given(asked: int | None, whole: str | None) -> Gate | None:
    """What --gate says, or every call because of the option `whole`; None: it is to be chosen."""
    if asked is not None:
        return Gate(asked, "--gate")
    return Gate(1, whole) if whole else None


def default(why: str) -> Gate:
    """The gate where there is nothing to choose by."""
    return Gate(DEFAULT, f"default: {why}")


def goal(size_bytes: int) -> float:
    """The share of the time that the instruments may take at this size of a message."""
    for (low, most), (high, least) in pairwise(GOALS):
        if size_bytes <= high:
            part = math.log(max(size_bytes, low) / low) / math.log(high / low)
            return most + part * (least - most)
    return GOALS[-1][1]


def choose(size_bytes: int, sides: list[Side], look_ns: float) -> Gate:
    """The least power of two that keeps the looks under the goal on the side where they weigh most."""
    side = max(sides, key=lambda side: side.looks / side.cpu_ns)
    share = side.looks * look_ns / side.cpu_ns
    wanted = goal(size_bytes)
    one_in = 1
    while share / one_in > wanted and one_in < MOST:
        one_in *= 2
    text = f"all {side.looks:,.0f} looks of {look_ns:,.0f} ns a message would be {_percent(share)}"
    text += (
        f" of the {side.name}'s CPU time, the goal at {format_whole_size(size_bytes)} is {_percent(wanted)}"
    )
    return Gate(one_in, text + (", missed by the greatest N" if share / one_in > wanted else ""))


def choose_by(size_bytes: int, functions: Mapping[str, Any] | None, warm_up: Marks, trial: Marks) -> Gate:
    """From a segment without instruments, and one in which `functions` is what the hooks counted."""
    if functions is None or functions["read_cost"] is None:
        return default("the cost of reading the clock could not be measured")
    sent, tried = (_moved(marks, "sender", "messages") for marks in (warm_up, trial))
    cpu_ns = {side: _moved(warm_up, side, "process_cpu_ns") for side in warm_up[2]}
    if min(sent, tried, *cpu_ns.values()) <= 0:
        return default("too little was sent in the warm-up to choose it")
    calls = dict.fromkeys(cpu_ns, 0)
    for cell in functions["cells"]:
        # Softirqs on top of other tasks have no CPU time of ours to be compared with.
        if cell["side"] in calls:
            calls[cell["side"]] += cell["calls"]
    sides = [Side(side, cpu_ns[side] / sent, LOOKS_PER_CALL * calls[side] / tried) for side in cpu_ns]
    return choose(size_bytes, sides, functions["read_cost"]["look_ns"])


def _moved(marks: Marks, side: str, key: str) -> int:
    """What happened between the begin and the end of a segment."""
    return int(marks[2][side][key]) - int(marks[1][side][key])


def _percent(share: float) -> str:
    """Two digits, or all before the point: `0.34 %`, `1 %`, `1,200 %`."""
    percent = 100 * share
    return f"{percent:,.0f} %" if percent >= 10 else f"{percent:.2g} %"

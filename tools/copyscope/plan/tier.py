# SPDX-License-Identifier: GPL-2.0-only
"""Choose the tier of a run (exact or sampled), and the share of function calls that is timed."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from copyscope.base.spelling import format_whole_size
from copyscope.record.segments import ABSENT, WORKS
from copyscope.record.session_result import Tier

# The first part chooses the gate N: one copy in N is timed, and all copies are counted. Pure.
#
# Timing reads the clock and the counters at the start and at the end of a copy. The cost of timing is the
# number of readings times the cost of a reading, as a share of the traffic's CPU time without instruments. N
# is the smallest number that keeps this share below the goal. Counting costs the same for each N. The
# measured overhead of the functions segments (ledger/machine_state.py) contains both costs.

# Totals of sender and receiver at four moments of a segment: the second moment is its start, the third moment
# its end (run/session.py).
Marks = Sequence[Mapping[str, Any]]

# Largest share (0..1) of CPU time that timing may take, by message size in bytes. Sizes in between are
# interpolated by their logarithm.
GOALS = ((64, 0.05), (1024, 0.03), (65536, 0.01))
DEFAULT_ONE_IN = 16
ONE_IN_MAX = 1024
# Readings of the clock for a timed copy: at its start and at its end.
READINGS_PER_COPY = 2


@dataclass(frozen=True)
class Gate:
    """Share of the copies that is timed: one copy in `one_in`. `why`: reason for it, as a clause."""

    one_in: int
    why: str

    @property
    def reason(self) -> str:
        timed = "every copy" if self.one_in == 1 else f"1 copy in {self.one_in:,}"
        return f"{timed} timed: {self.why}"


@dataclass(frozen=True)
class SideCost:
    """Cost of a message for the sender or the receiver.

    cpu_ns: CPU time without instruments
    clock_readings: clock readings if every copy is timed
    """

    name: str
    cpu_ns: float
    clock_readings: float


def given_gate(option_value: int | None, timing_all_option: str | None) -> Gate | None:
    """Return the gate that options define, or None if it must be chosen.

    `option_value`: value of --gate. `timing_all_option`: name of an option that requires timing every copy.
    """
    if option_value is not None:
        return Gate(option_value, "--gate")
    return Gate(1, timing_all_option) if timing_all_option else None


def default_gate(why: str) -> Gate:
    """Return the default gate. `why`: reason why measurements do not choose the gate."""
    return Gate(DEFAULT_ONE_IN, f"default: {why}")


def overhead_goal(size_bytes: int) -> float:
    """Return the largest fraction (0..1) of the CPU time that timing may take, for messages of this size."""
    for (low, goal_at_low), (high, goal_at_high) in pairwise(GOALS):
        if size_bytes <= high:
            position = math.log(max(size_bytes, low) / low) / math.log(high / low)
            return goal_at_low + position * (goal_at_high - goal_at_low)
    return GOALS[-1][1]


def choose_gate(size_bytes: int, sides: list[SideCost], reading_ns: float) -> Gate:
    """Return the gate with the smallest power of two that keeps the overhead of timing below the goal.

    The side with the larger overhead determines the gate. `reading_ns`: time that a clock reading takes.
    """
    side = max(sides, key=lambda side: side.clock_readings / side.cpu_ns)
    share = side.clock_readings * reading_ns / side.cpu_ns
    limit = overhead_goal(size_bytes)
    one_in = 1
    while share / one_in > limit and one_in < ONE_IN_MAX:
        one_in *= 2
    readings = f"{side.clock_readings:,.0f} clock readings of {reading_ns:,.0f} ns per message"
    text = (
        f"all {readings} would take {_percent(share)} of the {side.name}'s CPU time, "
        f"and the goal at {format_whole_size(size_bytes)} is {_percent(limit)}"
    )
    return Gate(one_in, text + (", which even the largest N exceeds" if share / one_in > limit else ""))


def choose_instrument_gate(
    size_bytes: int, functions: Mapping[str, Any] | None, warm_up: Marks, trial: Marks
) -> Gate:
    """Choose the gate from a segment without instruments and a trial segment with function hooks.

    `functions`: counts of the hooks in the trial. `warm_up`, `trial`: totals of both segments.
    """
    if functions is None or functions["read_cost"] is None:
        return default_gate("the cost of reading the clock could not be measured")
    messages, trial_messages = (_difference(marks, "sender", "messages") for marks in (warm_up, trial))
    cpu_ns = {side: _difference(warm_up, side, "process_cpu_ns") for side in warm_up[2]}
    if min(messages, trial_messages, *cpu_ns.values()) <= 0:
        return default_gate("too little was sent in the warm-up to choose the gate")
    calls = dict.fromkeys(cpu_ns, 0)
    for cell in functions["cells"]:
        # Softirqs on other tasks' time have no CPU time of our traffic to compare with.
        if cell["side"] in calls:
            calls[cell["side"]] += cell["calls"]
    sides = [
        SideCost(side, cpu_ns[side] / messages, READINGS_PER_COPY * calls[side] / trial_messages)
        for side in cpu_ns
    ]
    return choose_gate(size_bytes, sides, functions["read_cost"]["look_ns"])


def _difference(marks: Marks, side: str, key: str) -> int:
    """Return how much a total of one side grew from the start to the end of a segment."""
    return int(marks[2][side][key]) - int(marks[1][side][key])


def _percent(share: float) -> str:
    """Format a share with two digits, or without a fraction: `0.34 %`, `1 %`, `1,200 %`."""
    percent = 100 * share
    return f"{percent:,.0f} %" if percent >= 10 else f"{percent:.2g} %"


# The second part decides if a run is exact (functions are hooked) or sampled. Pure.

# Methods of hooking a function. Tracepoints are hooked by tp_btf instead.
FUNCTION_HOOK_KINDS = ("fentry", "kprobe.multi", "kprobe", "call-site")


def with_gate(tier: Tier, gate: Gate) -> Tier:
    """Add the gate and its reason to a tier with function hooks."""
    return replace(tier, reason=f"{tier.reason}; {gate.reason}") if tier.exact else tier


def choose_tier(requested: bool, hooks: Iterable[Mapping[str, Any]], *, by_name: bool = False) -> Tier:
    """Choose the tier from the hooks that the collector could attach, never from the kernel's version.

    `requested`: functions are to be hooked. `by_name`: the user named the instrument `functions`. Only then
    kprobes are used: attaching kprobes takes seconds (decision 004), and a kprobe that fires while another
    kprobe runs on its CPU is lost (bpf_prog_active).
    """
    if not requested:
        return Tier(False, "function hooks: not requested")
    rows = [hook for hook in hooks if hook["instrument"] == "functions"]
    # Entry of a send and a receive, and the tracepoints that stop a task's clock and follow softirqs.
    required = [row for row in rows if row["required"]]
    if not required:
        return Tier(False, "function hooks: this collector has none")
    for row in required:
        if row["state"] not in WORKS:
            return Tier(False, f"function hooks: refused by this kernel ({row['symbol']}: {row['reason']})")
        if row["how"] == "kprobe" and not by_name:
            return Tier(
                False,
                f"function hooks: {row['symbol']} only by kprobe, which is slow to attach and misses calls "
                "in softirqs; --instruments sampler,functions uses kprobes anyway",
            )
    kinds = Counter(row["how"] for row in rows if row["how"] in FUNCTION_HOOK_KINDS)
    counts = ", ".join(f"{count} by {kind}" for kind, count in sorted(kinds.items()))
    missing = sorted(row["id"] for row in rows if row["state"] in ABSENT)
    without = f"; not hooked: {', '.join(missing)}" if missing else ""
    return Tier(True, f"function hooks: {counts}{without}")

"""Shares of a side's instructions, of the same work: by samples of a timer, and counted one by one. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from copyscope import stats
from copyscope.ledger.compare_tiers import COMPARED, REST
from copyscope.simulate.output import Stack
from copyscope.simulate.symbols import frames
from copyscope.taxonomy.samples import by_own_timer
from copyscope.taxonomy.taxonomy import Taxonomy

SIDES = ("sender", "receiver")
# The timer's own work, which no timer sees.
TIMER = "perf_swevent_hrtimer"
UNSEEN = "irq"
# From one task to the next, interrupts off: the timer of the first is gone, that of the second not there yet.
SWITCH = "__schedule"
# Bytes that one step of a repeated instruction moves, which is one instruction to the clock: copies from and
# to user space since 6.4 (arch/x86/lib/copy_user_64.S).
REPEATED = {"rep_movs_alternative": 8}

Key = tuple[str, str, str]  # side, context, category
Path = Sequence[str]


@dataclass(frozen=True)
class Share:
    """One row of both: its part of the samples, in an interval, and of the instructions."""

    key: Key
    sampled: float
    low: float
    high: float
    modelled: float

    @property
    def inside(self) -> bool:
        return self.low <= self.modelled <= self.high


def sampled(samples: Iterable[Mapping[str, Any]], taxonomy: Taxonomy) -> Counter[Key]:
    """Samples of both sides, as the ledger counts them."""
    found: Counter[Key] = Counter()
    for row in samples:
        if row["side"] in SIDES and row["event"] == "cpu-clock":
            kind = taxonomy.classify(row["frames"])
            found[row["side"], str(kind.context), by_own_timer(kind)] += row["samples"]
    return found


def modelled(
    stacks: Iterable[Stack], names: dict[str, str], taxonomy: Taxonomy, wanted: Callable[[Path], bool]
) -> Counter[Key]:
    """Instructions of both sides whose stack is wanted."""
    found: Counter[Key] = Counter()
    for stack in stacks:
        path = frames(stack.frames, names)
        if stack.side in SIDES and TIMER not in path and wanted(path):
            kind = taxonomy.classify(path)
            steps = stack.counts["read_bytes"] // REPEATED[path[0]] if path and path[0] in REPEATED else 0
            found[stack.side, str(kind.context), kind.category] += stack.counts["instructions"] + steps
    return found


def is_switch(path: Path) -> bool:
    return SWITCH in path


def exact(before: Mapping[str, Any], after: Mapping[str, Any]) -> Counter[Key]:
    """Self times of the exact tier between two reports, in ns."""
    found: Counter[Key] = Counter()
    for sign, report in ((1, after), (-1, before)):
        for cell in report["functions"]["cells"]:
            category = "pin" if cell["category"] == "pin_pages" else cell["category"]
            if cell["side"] in SIDES:
                found[cell["side"], cell["context"], category] += sign * cell["self_ns"]
    return found


def in_kernel(counts: Mapping[Key, int], *, without: Sequence[str] = ()) -> Counter[Key]:
    """As the two tiers are compared: copies, and one row for what is none."""
    found: Counter[Key] = Counter()
    for (side, context, category), count in counts.items():
        if context != "user" and category not in without:
            found[side, context, category if category in COMPARED else REST] += count
    return found


def shares(counts: Mapping[Key, int]) -> dict[Key, float]:
    """Of each side's sum."""
    totals = Counter[str]()
    for key, count in counts.items():
        totals[key[0]] += count
    return {key: count / totals[key[0]] for key, count in counts.items() if totals[key[0]]}


def compare(hits: Mapping[Key, int], counted: Mapping[Key, int]) -> list[Share]:
    """One row per side, context and category that either knows; the largest first."""
    hits, counted = ({key: n for key, n in of.items() if key[2] != UNSEEN} for of in (hits, counted))
    parts, rows = shares(counted), []
    for key in {*hits, *counted}:
        samples = sum(count for other, count in hits.items() if other[0] == key[0])
        if samples:
            found = stats.wilson(hits.get(key, 0), samples)
            rows.append(Share(key, hits.get(key, 0) / samples, found.low, found.high, parts.get(key, 0.0)))
    return sorted(rows, key=lambda row: (SIDES.index(row.key[0]), -row.modelled, row.key))

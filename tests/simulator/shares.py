"""Shares of a side's work while its sampling timer is armed: counted, when the timer was due, and sampled.

Three counts of the same stretch of the same guest. The differences are the two ways in which samples can be
wrong: a timer that is due again and again where the guest is just then (in step with it), and an interrupt
that comes later than it was due. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from copyscope import stats
from copyscope.simulate.output import Fire, Stack
from copyscope.simulate.symbols import frames
from copyscope.taxonomy.taxonomy import Taxonomy

SIDES = ("sender", "receiver")
# The timer's own work: it is not due again meanwhile.
TIMER = "perf_swevent_hrtimer"
UNSEEN = "irq"
# What both tiers see as the same thing. The rest is cut along other lines: the sampler names the innermost
# function (memory for an skb), the exact tier the hooked function around it (the making of that skb).
COMPARED = ("copy_in", "pin", "deferred", "silent", "completion", "copy_out")
REST = "the rest"
SWITCH = "switch"

Key = tuple[str, str, str]  # side, context, category


@dataclass(frozen=True)
class Classifier:
    """From a stack's addresses to its row, as the ledger has it."""

    names: dict[str, str]
    taxonomy: Taxonomy

    def row(self, side: str, addresses: tuple[str, ...]) -> Key:
        kind = self.taxonomy.classify(frames(addresses, self.names) if addresses else ())
        return side, str(kind.context), kind.category

    def leaf(self, addresses: tuple[str, ...]) -> str:
        return next(iter(frames(addresses, self.names)), "user mode") if addresses else "user mode"


@dataclass(frozen=True)
class Share:
    """One row of all three, as shares, two with intervals; and what of the samples a switch moved here."""

    key: Key
    counted: float
    due: float
    due_low: float
    due_high: float
    sampled: float
    low: float
    high: float
    switched: float

    @property
    def inside(self) -> bool:
        return self.low <= self.counted <= self.high

    @property
    def due_inside(self) -> bool:
        return self.due_low <= self.counted <= self.due_high

    @property
    def in_step(self) -> float:
        return self.due - self.counted

    @property
    def late(self) -> float:
        return self.sampled - self.due


def sampled(samples: Iterable[Mapping[str, Any]], taxonomy: Taxonomy) -> Counter[Key]:
    """Samples of both sides, as the ledger counts them."""
    found: Counter[Key] = Counter()
    for row in samples:
        if row["side"] in SIDES and row["event"] == "cpu-clock":
            kind = taxonomy.classify(row["frames"])
            found[row["side"], str(kind.context), kind.category] += row["samples"]
    return found


def counted(stacks: Iterable[Stack], of: Classifier) -> Counter[Key]:
    """Instructions of both sides while the timer of the task was armed."""
    found: Counter[Key] = Counter()
    for stack in stacks:
        if stack.side in SIDES and stack.armed and TIMER not in frames(stack.frames, of.names):
            found[of.row(stack.side, stack.frames)] += stack.armed
    return found


def due(fires: Iterable[Fire], of: Classifier, why: str | None = None) -> Counter[Key]:
    """What ran when the timers of both sides were due; `why`: of those alone that came late so."""
    return Counter(
        of.row(fire.side, fire.due) for fire in fires if fire.side in SIDES and why in (None, fire.late)
    )


def met(fires: Iterable[Fire], of: Classifier, why: str | None = None) -> Counter[Key]:
    """What their interrupts then met."""
    return Counter(
        of.row(fire.side, fire.at) for fire in fires if fire.side in SIDES and why in (None, fire.late)
    )


def exact(before: Mapping[str, Any], after: Mapping[str, Any]) -> Counter[Key]:
    """Self times of the exact tier between two reports, in ns."""
    found: Counter[Key] = Counter()
    for sign, report in ((1, after), (-1, before)):
        for cell in report["functions"]["cells"]:
            category = "pin" if cell["category"] == "pin_pages" else cell["category"]
            if cell["side"] in SIDES:
                found[cell["side"], cell["context"], category] += sign * cell["self_ns"]
    return found


def in_kernel(counts: Mapping[Key, int], *, without: tuple[str, ...] = ()) -> Counter[Key]:
    """As the two tiers are compared: copies, and one row for what is none."""
    found: Counter[Key] = Counter()
    for (side, context, category), count in counts.items():
        if context != "user" and category not in without:
            found[side, context, category if category in COMPARED else REST] += count
    return found


def shares(counts: Mapping[Key, int]) -> dict[Key, float]:
    """Of each side's sum."""
    totals = _totals(counts)
    return {key: count / totals[key[0]] for key, count in counts.items() if totals[key[0]]}


def compare(
    hits: Mapping[Key, int],
    dues: Mapping[Key, int],
    instructions: Mapping[Key, int],
    switched: Mapping[Key, int],
) -> list[Share]:
    """One row per side, context and category that any of them knows; the largest first.

    switched: samples that a switch brought to a row, less those that it took from there.
    """
    hits, dues, instructions = (
        {key: count for key, count in of.items() if key[2] != UNSEEN} for of in (hits, dues, instructions)
    )
    parts, samples, periods = shares(instructions), _totals(hits), _totals(dues)
    rows = []
    for key in {*hits, *dues, *instructions}:
        total, due_total = samples[key[0]], periods[key[0]]
        if not total or not due_total:
            continue
        hit, was_due = hits.get(key, 0), dues.get(key, 0)
        found, of_due = stats.wilson(hit, total), stats.wilson(was_due, due_total)
        rows.append(
            Share(
                *(key, parts.get(key, 0.0), was_due / due_total, of_due.low, of_due.high),
                *(hit / total, found.low, found.high, switched.get(key, 0) / total),
            )
        )
    return sorted(rows, key=lambda row: (SIDES.index(row.key[0]), -row.counted, row.key))


def _totals(counts: Mapping[Key, int]) -> Counter[str]:
    totals = Counter[str]()
    for key, count in counts.items():
        totals[key[0]] += count
    return totals

"""Shares of a side's work: of all instructions, which are counted, and of samples. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from copyscope import stats
from copyscope.simulate.output import Stack
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


@dataclass(frozen=True)
class Share:
    """One row by both, as shares, with the interval of the samples."""

    key: Key
    counted: float
    sampled: float
    low: float
    high: float

    @property
    def inside(self) -> bool:
        return self.low <= self.counted <= self.high

    @property
    def error(self) -> float:
        return self.sampled - self.counted


def sampled(samples: Iterable[Mapping[str, Any]], taxonomy: Taxonomy) -> Counter[Key]:
    """Samples of both sides, as the ledger counts them."""
    found: Counter[Key] = Counter()
    for row in samples:
        if row["side"] in SIDES and row["event"] == "cpu-clock":
            kind = taxonomy.classify(row["frames"])
            found[row["side"], str(kind.context), kind.category] += row["samples"]
    return found


def counted(stacks: Iterable[Stack], of: Classifier) -> Counter[Key]:
    """Instructions of both sides, but for those of the sampling timer."""
    found: Counter[Key] = Counter()
    for stack in stacks:
        if stack.side in SIDES and TIMER not in frames(stack.frames, of.names):
            found[of.row(stack.side, stack.frames)] += stack.executed
    return found


def exact(before: Mapping[str, Any], after: Mapping[str, Any]) -> Counter[Key]:
    """Times of the copies of the exact tier between two reports, in ns."""
    found: Counter[Key] = Counter()
    for sign, report in ((1, after), (-1, before)):
        for cell in report["functions"]["cells"]:
            if cell["side"] in SIDES:
                found[cell["side"], cell["context"], cell["category"]] += sign * cell["self_ns"]
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


def shares_of(counts: Mapping[Key, int], whole: Mapping[Key, int]) -> dict[Key, float]:
    """Of each side's sum in another count."""
    totals = _totals(whole)
    return {key: count / totals[key[0]] for key, count in counts.items() if totals[key[0]]}


def compare(hits: Mapping[Key, int], instructions: Mapping[Key, int]) -> list[Share]:
    """One row per side, context and category that any of them knows; the largest first."""
    hits, instructions = (
        {key: count for key, count in of.items() if key[2] != UNSEEN} for of in (hits, instructions)
    )
    parts, samples = shares(instructions), _totals(hits)
    rows = []
    for key in {*hits, *instructions}:
        total = samples[key[0]]
        if total:
            hit = hits.get(key, 0)
            found = stats.wilson(hit, total)
            rows.append(Share(key, parts.get(key, 0.0), hit / total, found.low, found.high))
    return sorted(rows, key=lambda row: (SIDES.index(row.key[0]), -row.counted, row.key))


def _totals(counts: Mapping[Key, int]) -> Counter[str]:
    totals = Counter[str]()
    for key, count in counts.items():
        totals[key[0]] += count
    return totals

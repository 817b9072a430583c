# SPDX-License-Identifier: GPL-2.0-only
"""Shares of a process's work by counted instructions and by samples. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from copyscope.base import stats
from copyscope.run.simulate.counted_stacks import CountedStack, name_stack
from copyscope.taxonomy.taxonomy import Taxonomy

SIDES = ("sender", "receiver")
# Function of the sampling timer. It is not sampled, because the timer is not due again while it runs.
TIMER = "perf_swevent_hrtimer"
UNSEEN = "irq"
# Categories that both tiers delimit alike. The others differ: the sampler names the innermost function
# (memory for an skb), the exact tier the hooked function around it (allocation of that skb).
COMPARED = ("copy_in", "pin", "deferred", "silent", "completion", "copy_out")
REST = "the rest"
SWITCH = "switch"

Key = tuple[str, str, str]  # side, context, category


@dataclass(frozen=True)
class Classifier:
    """Classifies stacks of addresses as rows of the ledger."""

    names: dict[str, str]
    taxonomy: Taxonomy

    def row(self, side: str, addresses: tuple[str, ...]) -> Key:
        kind = self.taxonomy.classify(name_stack(addresses, self.names) if addresses else ())
        return side, str(kind.context), kind.category


@dataclass(frozen=True)
class Share:
    """Shares of one row by instructions and by samples, with the interval of the samples."""

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
    """Return the samples of sender and receiver by row of the ledger."""
    samples_by_row: Counter[Key] = Counter()
    for row in samples:
        if row["side"] in SIDES and row["event"] == "cpu-clock":
            kind = taxonomy.classify(row["frames"])
            samples_by_row[row["side"], str(kind.context), kind.category] += row["samples"]
    return samples_by_row


def counted(stacks: Iterable[CountedStack], of: Classifier) -> Counter[Key]:
    """Return the instructions of sender and receiver by row, without the sampling timer."""
    instructions: Counter[Key] = Counter()
    for stack in stacks:
        if stack.side in SIDES and TIMER not in name_stack(stack.frames, of.names):
            instructions[of.row(stack.side, stack.frames)] += stack.executed
    return instructions


def exact(before: Mapping[str, Any], after: Mapping[str, Any]) -> Counter[Key]:
    """Return the times (ns) of the exact tier between two reports, by row."""
    times_ns: Counter[Key] = Counter()
    for sign, report in ((1, after), (-1, before)):
        for cell in report["functions"]["cells"]:
            if cell["side"] in SIDES:
                times_ns[cell["side"], cell["context"], cell["category"]] += sign * cell["self_ns"]
    return times_ns


def in_kernel(counts: Mapping[Key, int], *, without: tuple[str, ...] = ()) -> Counter[Key]:
    """Return the counts in the kernel by row, with all other categories than COMPARED in one row."""
    sums: Counter[Key] = Counter()
    for (side, context, category), count in counts.items():
        if context != "user" and category not in without:
            sums[side, context, category if category in COMPARED else REST] += count
    return sums


def shares(counts: Mapping[Key, int]) -> dict[Key, float]:
    """Return each count divided by the sum of its process."""
    totals = _totals(counts)
    return {key: count / totals[key[0]] for key, count in counts.items() if totals[key[0]]}


def shares_of(counts: Mapping[Key, int], all_counts: Mapping[Key, int]) -> dict[Key, float]:
    """Return each count divided by the sum of its process in `all_counts`."""
    totals = _totals(all_counts)
    return {key: count / totals[key[0]] for key, count in counts.items() if totals[key[0]]}


def compare(hits: Mapping[Key, int], instructions: Mapping[Key, int]) -> list[Share]:
    """Return a Share for each row that has samples or instructions, the largest of each process first."""
    hits, instructions = (
        {key: count for key, count in counts.items() if key[2] != UNSEEN} for counts in (hits, instructions)
    )
    parts, samples = shares(instructions), _totals(hits)
    rows = []
    for key in {*hits, *instructions}:
        total = samples[key[0]]
        if total:
            hit = hits.get(key, 0)
            interval = stats.wilson(hit, total)
            rows.append(Share(key, parts.get(key, 0.0), hit / total, interval.low, interval.high))
    return sorted(rows, key=lambda row: (SIDES.index(row.key[0]), -row.counted, row.key))


def _totals(counts: Mapping[Key, int]) -> Counter[str]:
    totals = Counter[str]()
    for key, count in counts.items():
        totals[key[0]] += count
    return totals

"""Where the saved copy went: what each part of the work costs more or less with zero-copy than without.

The difference between two strategies, or two ways of receiving, in ns per KiB of payload, split by what the
ledger knows: the copy that was saved, what stands for it (pinning, the late copy, completions,
mapping), the work per packet (which grows when referenced pages make smaller packets: MAX_SKB_FRAGS of
include/linux/skbuff.h is 17 by default), and the rest. Each whole is the median over the repeats that both
have, each part its mean share of it, so that the steps add up (estimates.py says why medians of parts would
not).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from copyscope import stats
from copyscope.judge.estimates import Parts, parts_of, typical, whole_of
from copyscope.record.check import Whole
from copyscope.stats import Estimate, Missing
from copyscope.study.table import Row, setting_of

# what a step is called -> the accounts and stages that it is made of
PARTS: dict[str, tuple[str, ...]] = {
    "copy from the page cache": ("file_read",),
    "program's own memcpy": ("gather",),
    "cipher in the program": ("user_encrypt",),
    "copy into the kernel": ("copy_in",),
    "page pinning": ("pin",),
    "encryption": ("encrypt", "decrypt"),
    "late copy": ("deferred", "silent"),
    "completion notices": ("completion",),
    "work per packet": ("skb_alloc", "tcp_ip", "device", "softirq"),
    "copy to the receiver": ("copy_out",),
    "pages mapped": ("mapped",),
    "copy through tun or tap": ("tun",),
    "waking, scheduling": ("wakeup_sched",),
    "not explained": ("unattributed",),
}
REST = "rest"
# (setting, the value that copies, the one that does not)
SAVING = (("impl", "one_copy", "zero_copy"), ("receiver", "read", "map"))


@dataclass(frozen=True)
class Step:
    """One part of the difference, ns per KiB: below 0: saved, above 0: added."""

    name: str
    change: Estimate


@dataclass(frozen=True)
class Waterfall:
    """From what `before` costs to what `after` costs, all sides together, ns per KiB.

    The two differ in the setting `by`.
    """

    before: Row
    after: Row
    start: float
    end: float
    steps: tuple[Step, ...]
    by: str = "impl"

    @property
    def names(self) -> tuple[str, str]:
        return str(self.before.factors[self.by]), str(self.after.factors[self.by])


def waterfalls(rows: Sequence[Row]) -> list[Waterfall | Missing]:
    """One for each setting in which both of a kind of SAVING were measured."""
    return [
        waterfall(a, b, by) for by, before, after in SAVING for a, b in counterparts(rows, before, after, by)
    ]


def simplest(rows: Sequence[Row]) -> list[Waterfall | Missing]:
    """Those of the fewest threads, which is what a picture has room for."""
    fewest = min((row.threads for row in rows), default=1)
    return waterfalls([row for row in rows if row.threads == fewest])


def counterparts(rows: Sequence[Row], a: str, b: str, by: str = "impl") -> list[tuple[Row, Row]]:
    """Pairs of rows that differ in `by` only, in the order of the table."""
    theirs = {setting_of(row.factors, by): row for row in rows if row.factors.get(by) == b}
    ours = [(row, setting_of(row.factors, by)) for row in rows if row.factors.get(by) == a]
    return [(row, theirs[setting]) for row, setting in ours if setting in theirs]


def waterfall(before: Row, after: Row, by: str = "impl") -> Waterfall | Missing:
    """The steps from one point to the other, of the repeats that both have."""
    if not before.valid or not after.valid:
        return Missing("no repeat in which both were valid")
    ours, theirs = _shared(before.point.runs, after.point.runs)
    start, end = whole_of(ours), whole_of(theirs)
    if start is None or end is None:
        return Missing("no repeat that both have with its CPU time")
    usual, unusual = _grouped(typical(ours)), _grouped(typical(theirs))
    steps = []
    for name in (*PARTS, REST):
        changes = [
            _grouped(b).get(name, 0.0) - _grouped(a).get(name, 0.0) for a, b in zip(ours, theirs, strict=True)
        ]
        if any(changes):
            value = unusual.get(name, 0.0) - usual.get(name, 0.0)
            steps.append(Step(name, _centred(stats.median_of(changes), fmean(changes), value)))
    return Waterfall(before, after, start, end, tuple(steps), by)


def _shared(ours: Sequence[Whole], theirs: Sequence[Whole]) -> tuple[list[Parts], list[Parts]]:
    """The parts of the runs of both points, of the repeats that both have, in the same order."""
    tables = [
        {run.raw.run.repeat: parts for run, parts in zip(runs, found, strict=True) if parts}
        for runs, found in ((ours, parts_of(ours, beside=theirs)), (theirs, parts_of(theirs, beside=ours)))
    ]
    repeats = [repeat for repeat in tables[0] if repeat in tables[1]]
    return [tables[0][repeat] for repeat in repeats], [tables[1][repeat] for repeat in repeats]


def _centred(spread: Estimate, middle: float, value: float) -> Estimate:
    """`value` with the interval that paired differences have around their mean."""
    if spread.ends is None:
        return replace(spread, value=value)
    low, high = min(0.0, spread.ends[0] - middle), max(0.0, spread.ends[1] - middle)
    return replace(spread, value=value, low=value + low, high=value + high)


def _grouped(parts: Parts) -> dict[str, float]:
    """Accounts and stages as the steps of a waterfall."""
    part_of = {category: part for part, categories in PARTS.items() for category in categories}
    found: dict[str, float] = {}
    for category, cost in parts.items():
        part = part_of.get(category, REST)
        found[part] = found.get(part, 0.0) + cost
    return found


def why_no_waterfall(saved: Sequence[Waterfall | Missing]) -> str | None:
    """Why none of them could be made; None where one could."""
    missing = [one.reason for one in saved if isinstance(one, Missing)]
    if len(missing) < len(saved):
        return None
    return missing[0] if missing else "one_copy and zero_copy were not both measured"

"""What the CPU time of some runs was spent on, as parts that add up to it. Pure.

A ledger row with a few samples has a median of zero over repeats and a mean above it, and a short run may
not sample a side at all; so neither medians nor sums of rows come to what the counters say was spent. Here
each side's CPU time is divided by its own rows: in a run that did not sample it, by those of the other runs
of the point; where no run did, it is `unattributed`.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, median

from copyscope.compare.estimates import row_costs
from copyscope.compare.metrics import cpu_per_kib
from copyscope.ledger.attribution import SIDES
from copyscope.record.segments import Record

Parts = dict[str, float]  # account or stage -> ns per KiB, all sides and contexts


def parts_of(
    records: Sequence[Record], blind: Sequence[str] = (), sides: Sequence[str] = SIDES
) -> list[Parts]:
    """The parts of each run, in order; of a run whose CPU time is not known, none.

    `blind`: sides that are taken as not sampled, because what they are compared with was not.
    """
    pooled = {side: _shares([row_costs(record) for record in records], side) for side in sides}
    return [_parts(record, pooled, blind) for record in records]


def unsampled(records: Sequence[Record]) -> list[str]:
    """The sides of which no run has a sample."""
    tables = [row_costs(record) for record in records]
    return [side for side in SIDES if not _shares(tables, side)]


def _parts(record: Record, pooled: Mapping[str, Parts], blind: Sequence[str]) -> Parts:
    found: Parts = {}
    rows = row_costs(record)
    for side in pooled:
        cost = cpu_per_kib(record, (side,)).value
        if cost is None:
            return {}
        shares = {} if side in blind else _shares([rows], side) or pooled[side]
        shares = shares or {"unattributed": 1.0}
        for category, share in shares.items():
            found[category] = found.get(category, 0.0) + share * cost
    return found


def _shares(tables: Sequence[Mapping[tuple[str, str, str], float]], side: str) -> Parts:
    """Account or stage -> its part of a side's rows (0..1); empty when nothing of the side was sampled."""
    found: Parts = {}
    for table in tables:
        for (category, whose, _), cost in table.items():
            if whose == side:
                found[category] = found.get(category, 0.0) + cost
    whole = sum(found.values())
    return {category: cost / whole for category, cost in found.items()} if whole > 0 else {}


def whole_of(runs: Sequence[Parts]) -> float | None:
    """The median cost over runs, ns per KiB; None where none is known."""
    known = [sum(parts.values()) for parts in runs if parts]
    return median(known) if known else None


def typical(runs: Sequence[Parts]) -> Parts:
    """Each part's mean share over runs, of the median cost: the parts add up to it."""
    whole = whole_of(runs)
    known = [parts for parts in runs if sum(parts.values()) > 0]
    if whole is None or not known:
        return {}
    names = dict.fromkeys(name for parts in known for name in parts)
    return {
        name: whole * fmean(parts.get(name, 0.0) / sum(parts.values()) for parts in known) for name in names
    }

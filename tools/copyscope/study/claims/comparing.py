"""Claims that order strategies: compared at every size and number of threads, with an eye on chance."""

from collections.abc import Sequence
from dataclasses import dataclass

from copyscope import stats
from copyscope.compare import estimates
from copyscope.compare.estimates import SAME, Estimate, Missing, Point
from copyscope.study.claims.model import (
    HOLDS,
    REFUTED,
    UNDETERMINED,
    Finding,
    Row,
    Runs,
    estimate_row,
    interval_text,
)
from copyscope.units import counted, format_size

# A 95 % interval lies wholly on the wrong side of the truth in this share of cases.
WRONG_SIDE = 0.025
CHANCE = 0.05


@dataclass(frozen=True)
class Comparison:
    """A ratio at one size and number of threads, and on which side of `bound` the claim wants it."""

    what: str
    threads: int
    size_bytes: int
    ratio: Estimate | Missing
    wanted: str  # points.MORE or points.LESS
    row: Row
    bound: float

    @property
    def verdict(self) -> str:
        return SAME if isinstance(self.ratio, Missing) else self.ratio.against(self.bound)

    @property
    def place(self) -> str:
        return f"{self.what} at {format_size(self.size_bytes)}, {counted(self.threads, 'thread')}"

    @property
    def text(self) -> str:
        if isinstance(self.ratio, Missing):
            return f"{self.place}: n/a ({self.ratio.reason})"
        return f"{self.place}: {interval_text(self.ratio)}"


def compare(runs: Runs, first: str, second: str, metric: str, wanted: str) -> list[Comparison]:
    """first / second of a metric wherever both were measured."""
    return [
        make(f"{first} / {second}", (threads, size), (point_a, point_b), metric, wanted)
        for threads, size, point_a, point_b in runs.pairs(first, second)
    ]


def make(
    what: str, at: tuple[int, int], pair: tuple[Point, Point], metric: str, wanted: str, *, bound: float = 1.0
) -> Comparison:
    """One comparison of two points; `at`: threads and size in bytes."""
    threads, size = at
    found = estimates.ratio(pair[0], pair[1], metric)
    row = estimate_row(
        f"{metric}: {what}", found, [*pair[0].records, *pair[1].records], size_bytes=size, threads=threads
    )
    return Comparison(what, threads, size, found, wanted, row, bound)


def always(comparisons: Sequence[Comparison]) -> Finding:
    """Whether all comparisons come out as the claim wants.

    Of many intervals some lie on the wrong side by chance: a claim is refuted when more contradict it than
    that explains.
    """
    rows = [one.row for one in comparisons]
    known = [one for one in comparisons if isinstance(one.ratio, Estimate)]
    if not known:
        reasons = dict.fromkeys(c.ratio.reason for c in comparisons if isinstance(c.ratio, Missing))
        return Finding(UNDETERMINED, "; ".join(reasons) or "nothing to compare", rows)
    against = [one for one in known if one.verdict not in (SAME, one.wanted)]
    open_ = [one for one in known if one.verdict == SAME]
    tally = f"of {len(known)} comparisons {len(known) - len(against) - len(open_)} as claimed, "
    tally += f"{len(against)} the other way, {len(open_)} without a difference found"
    if against and stats.chance_of(len(against), len(known), WRONG_SIDE) < CHANCE:
        return Finding(REFUTED, f"{tally}; {_some(against)}", rows)
    if len(known) == len(comparisons) and not against and not open_:
        return Finding(HOLDS, f"{tally}; {_some(known)}", rows)
    lacking = [one for one in comparisons if isinstance(one.ratio, Missing)]
    return Finding(UNDETERMINED, f"{tally}; {_some([*against, *open_, *lacking])}", rows)


def _some(found: Sequence[Comparison]) -> str:
    """The first few; the rows have all of them."""
    shown = "; ".join(one.text for one in found[:3])
    return f"{shown}; and {len(found) - 3} more" if len(found) > 3 else shown

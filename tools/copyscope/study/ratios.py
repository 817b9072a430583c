"""Every point as a ratio to one strategy at the same setting, repeat by repeat. Pure."""

from collections.abc import Sequence

from copyscope.judge import estimates
from copyscope.stats import Estimate
from copyscope.study.cost_waterfall import counterparts
from copyscope.study.facets import Axis, Panel, arrange
from copyscope.study.table import Row

# What the others are compared with: one copy into the kernel, as send() makes it.
BASE = "one_copy"

Ratios = dict[str, list[Estimate | None]]


def relative(rows: Sequence[Row], axis: Axis, metric: str) -> list[tuple[Panel, Ratios]]:
    """For each panel of `facets.arrange` the ratio of each strategy at each place; None: there is none."""
    found = []
    for panel in arrange(rows, axis):
        members = [row for line in panel.lines.values() for row in line]
        across = places(members, axis)
        ratios: Ratios = {}
        for impl in panel.lines:
            at = {}
            for base, row in counterparts(members, BASE, impl):
                ratio = estimates.ratio(row.point, base.point, metric)
                at[row.factors[axis.factor]] = ratio if isinstance(ratio, Estimate) else None
            if any(at.values()):
                ratios[impl] = [at.get(place) for place in across]
        if ratios:
            found.append((panel, ratios))
    return found


def places(rows: Sequence[Row], axis: Axis) -> list[float]:
    """The values of the axis that were measured, in order."""
    return sorted({row.factors[axis.factor] for row in rows})

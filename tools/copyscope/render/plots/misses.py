"""Cache misses per KiB along the size of a message: first and last level, sender and receiver."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from copyscope.render.plots.curves import Quantity, draw
from copyscope.study.facets import find_axis
from copyscope.study.table import Row

TITLE = "Cache misses per KiB delivered"


def plot(rows: Sequence[Row], caption: str) -> Figure:
    """Counters of each process over the payload that was delivered while they counted."""
    quantities = [
        Quantity(f"{level}_misses_per_kib_{side}", "load misses (1/KiB)", f"{name}, {side}")
        for level, name in (("l1d", "L1D"), ("llc", "LLC"))
        for side in ("sender", "receiver")
    ]
    return draw(rows, find_axis(rows), quantities, TITLE, caption)

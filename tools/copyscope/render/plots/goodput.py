"""Goodput along the size of a message, one panel per thread count."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from copyscope.render.plots.curves import Quantity, draw
from copyscope.study.facets import find_axis
from copyscope.study.table import Row

TITLE = "Goodput: how much payload arrives"


def plot(rows: Sequence[Row], caption: str) -> Figure:
    """Median over repeats of the segments without instruments, with 95 % intervals."""
    return draw(rows, find_axis(rows), [Quantity("goodput_gbps", "goodput (Gb/s)")], TITLE, caption)

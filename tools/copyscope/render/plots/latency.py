"""Real latency along the number of threads: request to response, only of runs in rr mode."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from copyscope.render.plots.curves import Quantity, draw
from copyscope.study.facets import find_axis
from copyscope.study.table import Row

TITLE = "Latency: request to response (rr mode)"


def plot(rows: Sequence[Row], caption: str) -> Figure:
    """Median and 99th percentile of the round trips of each run, as medians over repeats."""
    rr = [row for row in rows if row.mode == "rr"]
    quantities = [
        Quantity("rtt_p50_us", "round trip (us)", "median"),
        Quantity("rtt_p99_us", "round trip (us)", "99th percentile"),
    ]
    return draw(rr or rows, find_axis(rr or rows, first="threads"), quantities, TITLE, caption)

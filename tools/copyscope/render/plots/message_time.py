"""Time per message along the number of threads: an inverse throughput, and called so."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from copyscope.render.plots.curves import Quantity, draw
from copyscope.study.facets import find_axis
from copyscope.study.table import Row

TITLE = "Time per message and connection: an inverse throughput, not a latency"


def plot(rows: Sequence[Row], caption: str) -> Figure:
    """Wall time of all connections over messages, of the segments without instruments."""
    quantity = Quantity("time_per_message_us", "time per message (us)")
    return draw(rows, find_axis(rows, first="threads"), [quantity], TITLE, caption)

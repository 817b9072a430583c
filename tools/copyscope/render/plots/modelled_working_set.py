"""Misses of each copy along the memory that the sender goes round in, in a simulated machine."""

from collections import Counter
from collections.abc import Sequence

from matplotlib.figure import Figure

from copyscope.render.plots.modelled_bars import Across, draw
from copyscope.study.modelled import ModelPoint
from copyscope.units import format_whole_size

TITLE = "Where the lines of each copy miss, by the working set of the sender (modelled)"


def plot(points: Sequence[ModelPoint], caption: str) -> Figure:
    """At the size of which most rings were counted, over veth."""
    veth = [point for point in points if point.setting.path == "veth"]
    rings = Counter(point.size for point in {(p.size, p.setting): p for p in veth}.values())
    size = max(rings, key=lambda one: (rings[one], one), default=0)
    kept = [point for point in veth if point.size == size]
    note = f"Messages of {format_whole_size(size)} over veth; misses of loads and stores, all sides."
    across = Across("messages in turn, together", lambda point: point.working_set_bytes)
    return draw(kept, across, TITLE, f"{note} {caption}")

"""Misses of each copy along the size of a message, in a simulated machine."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from copyscope.render.plots.modelled_bars import Across, draw
from copyscope.study.modelled import ModelPoint, usual_setting

TITLE = "Where the lines of each copy miss, by the size of a message (modelled)"
SMALLEST = 1024


def plot(points: Sequence[ModelPoint], caption: str) -> Figure:
    """Over veth, with the ring that most sizes were counted with."""
    kept = usual_setting([point for point in points if point.size >= SMALLEST])
    ring = kept[0].setting.working_set_messages if kept else 0
    note = (
        f"Misses of loads and stores, all sides, veth, {ring} messages in the ring; a copy of 1 KiB reads 16"
        " lines and writes 16. Dashed: the size of a cache. A number in a bar: it leaves the panel."
    )
    return draw(kept, Across("size of a message", lambda point: point.size), TITLE, f"{note} {caption}")

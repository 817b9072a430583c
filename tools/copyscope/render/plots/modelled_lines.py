"""From the L1D misses of one_copy to those of zero_copy, step by step, in a simulated machine."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from copyscope.render.plots.grid import Grid
from copyscope.render.plots.saved_copy import nothing, waterfalls
from copyscope.study.modelled import ModelPoint, line_waterfall, pairs
from copyscope.units import format_whole_size

TITLE = "Where the lines of the saved copy went: from one_copy to zero_copy (modelled)"
SIZES = (4096, 65536, 1 << 20)
PATHS = ("veth", "nics")


def plot(points: Sequence[ModelPoint], caption: str) -> Figure:
    """Of the first model and the smallest ring: a row for veth, and one for two network cards."""
    ring = min((point.setting.working_set_messages for point in points), default=0)
    cache = points[0].setting.cache if points else ""
    found = [
        line_waterfall(one, zero)
        for path in PATHS
        for one, zero in pairs(points, "one_copy", "zero_copy")
        if (one.setting.path, one.setting.cache, one.setting.working_set_messages) == (path, cache, ring)
        and one.size in SIZES
    ]
    if not found:
        return nothing(TITLE, caption, "one_copy and zero_copy were not both counted at 4 KiB and more")
    note = (
        f"L1D misses per KiB, all sides, model {cache}, {ring} messages in the ring; steps of paired boots."
    )
    grid = Grid(TITLE, f"{note} {caption}", len(found), panel_in=2.3, below_in=1.1, down_in=1.45)
    titles = [f"{one.after.setting.path}, {format_whole_size(one.after.size)}" for one in found]
    return waterfalls(grid, found, titles, "lines per KiB", ("whole", "more", "fewer"))

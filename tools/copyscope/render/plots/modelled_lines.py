"""From the L1D misses of one_copy to those of zero_copy, step by step, in a simulated machine."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from copyscope.render.plots.grid import Grid, say_not_available
from copyscope.render.plots.saved_copy import DEARER, SAVED, WHOLE, draw_steps
from copyscope.render.plots.style import INK, look
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
        grid = Grid(TITLE, caption, 1, panel_in=1.4, legend_lines=0, below_in=0.15)
        with look():
            say_not_available(grid.axes[0], "one_copy and zero_copy were not both counted at 4 KiB and more")
        return grid.figure
    note = (
        f"L1D misses per KiB, all sides, model {cache}, {ring} messages in the ring; steps of paired boots."
    )
    grid = Grid(TITLE, f"{note} {caption}", len(found), panel_in=2.3, below_in=1.1, down_in=1.45)
    with look():
        for index, (axes, one) in enumerate(zip(grid.axes, found, strict=True)):
            axes.set_title(f"{one.after.setting.path}, {format_whole_size(one.after.size)}", loc="left")
            draw_steps(axes, (one.before.impl, one.after.impl), (one.start, one.end), one.steps)
            if index % grid.columns == 0:
                axes.set_ylabel("lines per KiB")
        named = [("whole", WHOLE, ""), ("more", DEARER, "\\\\"), ("fewer", SAVED, "//")]
        handles = [Patch(facecolor=c, hatch=h, edgecolor=INK, linewidth=0.5) for _, c, h in named]
        grid.legend(handles, [name for name, _, _ in named])
    return grid.figure

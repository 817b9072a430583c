"""The plot of precision_bench.py, from its result."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from copyscope.render.plots.grid import Grid
from copyscope.render.plots.style import BLUE, FAINT, GREEN, ORANGE, VERMILLION, Mark, look
from matplotlib.lines import Line2D
from precision_bench import SECONDS, SIZE
from precision_numbers import (
    OURS,
    OURS_FAST,
    OURS_WHOLE,
    PERF,
    PERF_HZ,
    WANTED,
    needed,
    repeats_text,
    seconds_text,
)


def draw(made: Sequence[dict[str, Any]], directory: Path) -> None:
    """precision.png and .svg: the points, the fits, and where they reach 2 %."""
    marks = {
        OURS: Mark(BLUE, "o", "-"),
        OURS_FAST: Mark(GREEN, "^", "-."),
        OURS_WHOLE: Mark(ORANGE, "D", ":"),
        PERF: Mark(VERMILLION, "s", "--"),
    }
    # results of before they were kept do not say on which
    where = f", CPUs {' and '.join(made[0]['cpus'])}" if "cpus" in made[0] else ""
    caption = (
        f"Half of the 95 % interval (Wilson) in percent of the row: the sampling error of its share, of one "
        f"run. {repeats_text(made)} {SIZE // 1024} KiB messages over "
        f"veth{where}; lines: c / sqrt(seconds). Ours: tools/profile.py, 0.57 of the time "
        f"in the ledger, with --messages all of it. perf record: {PERF_HZ} Hz, its default, both sides. "
        "What each costs the traffic meanwhile: see the benchmark observer."
    )
    grid = Grid(
        "Sampling error per second: how long until a row's share has an interval of 2 %",
        caption,
        len(made),
        panel_in=3.4,
    )
    with look():
        for axes, part in zip(grid.axes, made, strict=True):
            longest = 2.0 * max(SECONDS)
            for place, (tool, samples) in enumerate(part["samples"].items()):
                found, mark = needed(samples), marks[tool]
                known = sorted((s["seconds"], 100 * s["half_width"]) for s in samples if s["half_width"])
                if found is None or not known:
                    continue
                longest = max(longest, 2 * found[0])
                axes.plot(*zip(*known, strict=True), color=mark.colour, marker=mark.marker, linestyle="")
                ends = (min(SECONDS) / 2, max(found[0], *SECONDS))
                after_1_s = 100 * WANTED * math.sqrt(found[0])
                heights = [after_1_s / math.sqrt(end) for end in ends]
                axes.plot(ends, heights, color=mark.colour, linestyle=mark.dashes, linewidth=1.2)
                axes.plot([found[0]], [100 * WANTED], color=mark.colour, marker="|", markersize=14)
                axes.annotate(
                    seconds_text(found[0]),
                    (found[0], 100 * WANTED), xytext=(0, -16 - 11 * place), textcoords="offset points",
                    ha="center", color=mark.colour, fontsize=8.5,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
                )  # fmt: skip
            axes.axhline(100 * WANTED, color=FAINT, linewidth=0.8)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlim(min(SECONDS) / 2, longest)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            ticks = [1, 2, 5, 10, 20, 50, 100]
            axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
            axes.set_ylim(0.45, 150)  # below 2 % there is room for the label of each tool
            axes.set_xlabel("seconds of run")
            axes.set_title(f"{part['account']} ({part['impl']})", loc="left")
        grid.axes[0].set_ylabel("half of the interval (%)")
        handles = [
            Line2D([], [], color=mark.colour, marker=mark.marker, linestyle=mark.dashes)
            for mark in marks.values()
        ]
        grid.legend(handles, list(marks))
        for suffix in ("svg", "png"):
            metadata = {"Date": None, "Creator": None} if suffix == "svg" else {"Software": None}
            grid.figure.savefig(directory / f"precision.{suffix}", dpi=300, metadata=metadata)

"""Draws every plot of the catalogue, in processes of their own: drawing is what a report waits for."""

from __future__ import annotations

import importlib
import io
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from copyscope.render.plots.catalogue import PLOTS
from copyscope.sheet import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 300
# the plots that take longest, so that they begin first
SLOW_FIRST = ("ledger_stack", "misses", "cycles", "saved_copy")


@dataclass(frozen=True)
class Drawing:
    """One plot as files."""

    svg: bytes
    png: bytes


# What is drawn; set before the processes are forked, so that rows need not be pickled.
_work: tuple[Sequence[Row], str] = ((), "")


@contextmanager
def drawing(rows: Sequence[Row], caption: str) -> Iterator[dict[str, Future[Drawing]]]:
    """Begins to draw; yields the promised files by the name of the plot, in the order of the catalogue."""
    global _work  # noqa: PLW0603 (inherited by fork)
    _work = rows, caption
    names = sorted((p.name for p in PLOTS), key=lambda n: SLOW_FIRST.index(n) if n in SLOW_FIRST else 99)
    workers = min(
        len(names), os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count() or 1
    )
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
        promised = {name: pool.submit(draw, name) for name in names}
        yield {plot.name: promised[plot.name] for plot in PLOTS}


def draw(name: str) -> Drawing:
    """One plot of the rows at hand, as SVG and PNG without dates."""
    rows, caption = _work
    module = importlib.import_module(f"copyscope.render.plots.{name}")
    figure = module.plot(rows, caption)
    svg = io.BytesIO()
    from copyscope.render.plots.style import look  # noqa: PLC0415 (imports matplotlib)

    with look():
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        return Drawing(svg.getvalue(), _png(figure))


def _png(figure: Figure) -> bytes:
    """The figure in 256 colours, which plots do not exceed visibly: a third of the bytes, and faster."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from PIL import Image  # noqa: PLC0415

    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = canvas.buffer_rgba()  # type: ignore[no-untyped-call]
    size = canvas.get_width_height()
    image = Image.frombuffer("RGBA", size, pixels, "raw", "RGBA", 0, 1).convert("RGB")
    # every third pixel of every third line has the colours of all; to sort all takes five times as long
    sparse = image.resize((size[0] // 3, size[1] // 3), Image.Resampling.NEAREST)
    colours = sparse.quantize(256, method=Image.Quantize.FASTOCTREE)
    image = image.quantize(palette=colours, dither=Image.Dither.NONE)
    palette = image.getpalette() or []
    triples = [palette[index : index + 3] for index in range(0, len(palette), 3)]
    # the paper is white, and not nearly white
    image.putpalette([value for triple in triples for value in ([255] * 3 if min(triple) > 252 else triple)])
    data = io.BytesIO()
    image.save(data, format="PNG", dpi=(DPI, DPI))
    return data.getvalue()

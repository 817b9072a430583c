"""Draws every plot of the catalogue, each as SVG and PNG."""

from __future__ import annotations

import gc
import importlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from copyscope.escaping import visible
from copyscope.judge.crossover import Crossover
from copyscope.report.plots.catalogue import MODELLED, PLOTS, Plot
from copyscope.stats import Missing
from copyscope.study.cost_waterfall import Waterfall
from copyscope.study.modelled import ModelPoint
from copyscope.study.table import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 300


@dataclass(frozen=True)
class Drawing:
    """One plot as files."""

    svg: bytes
    png: bytes


@dataclass(frozen=True)
class Subject:
    """What is drawn."""

    rows: Sequence[Row]
    saved: Sequence[Waterfall | Missing]
    caption: str
    modelled: Sequence[ModelPoint] = ()
    crossings: Sequence[Crossover] = ()

    @property
    def plots(self) -> Sequence[Plot]:
        """What there is to draw."""
        return MODELLED if self.modelled else PLOTS


def draw_all(subject: Subject) -> tuple[dict[str, Drawing], dict[str, str]]:
    """By its name, in the order of the catalogue: the files of each plot, or why there is nothing to draw."""
    drawings, undrawn = {}, {}
    gc.freeze()
    for plot in subject.plots:
        drawn = draw(plot.name, subject)
        if isinstance(drawn, Missing):
            undrawn[plot.name] = drawn.reason
        else:
            drawings[plot.name] = drawn
        # A figure is a ring of objects: nothing else lets go of its pictures.
        gc.collect()
    return drawings, undrawn


def painter_of(plot: Plot) -> Callable[..., Figure | Missing]:
    """What draws it."""
    module, function = plot.painter.split(".")
    found = importlib.import_module(f"copyscope.report.plots.{module}")
    painter: Callable[..., Figure | Missing] = getattr(found, function)
    return painter


def figure_of(name: str, subject: Subject) -> Figure | Missing:
    """One plot of the catalogue."""
    from copyscope.report.plots.matplotlib_settings import look  # noqa: PLC0415 (imports matplotlib)

    plot = next(plot for plot in (*PLOTS, *MODELLED) if plot.name == name)
    drawn = (plot, subject.rows) if plot.curves else (getattr(subject, plot.of),)
    with look():
        return painter_of(plot)(*drawn, subject.caption)


def harmless(figure: Figure) -> None:
    """What a record calls itself is drawn as letters, whatever it holds."""
    from matplotlib.text import Text  # noqa: PLC0415

    for text in figure.findobj(Text):
        if isinstance(text, Text) and (shown := visible(text.get_text(), lines=True)) != text.get_text():
            text.set_text(shown)


def draw(name: str, subject: Subject) -> Drawing | Missing:
    """One plot as SVG and PNG without dates."""
    figure = figure_of(name, subject)
    if isinstance(figure, Missing):
        return figure
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        # a place for no text: looking for one measures all tick labels, in each drawing
        if not axis.label.get_text():
            axis.set_label_coords(0, 0)
    svg = io.BytesIO()
    from copyscope.report.plots.matplotlib_settings import look  # noqa: PLC0415 (imports matplotlib)

    with look():
        harmless(figure)
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
    image = Image.frombytes("RGB", size, pixels, "raw", "RGBX")
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

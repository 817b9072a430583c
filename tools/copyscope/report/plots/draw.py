# SPDX-License-Identifier: GPL-2.0-only
"""Draw all plots of a report as SVG and PNG, with a picture of the ratios for each setting."""

from __future__ import annotations

import gc
import importlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from copyscope.base.spelling import visible
from copyscope.base.stats import Missing
from copyscope.report.model_points import ModelPoint
from copyscope.report.plots.catalogue import MODELLED, PLOTS, RATIOS, Plot, view_name
from copyscope.report.study_table import RatioView, StudyRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Resolution of the PNG files in dots per inch.
DPI = 150
# Metadata that the SVG files do not contain, so that the same records give the same bytes.
NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


@dataclass(frozen=True)
class Drawing:
    """Content of a plot's files. `png` is None for a picture that only the page shows."""

    svg: bytes
    png: bytes | None


@dataclass(frozen=True)
class PlotSubject:
    """Data for all plots of a report.

    rows: measured points
    caption: text at the foot of every plot
    modelled: simulated points
    ratios: ratios in each setting
    """

    rows: Sequence[StudyRow]
    caption: str
    modelled: Sequence[ModelPoint] = ()
    ratios: Sequence[RatioView] = ()

    @property
    def plots(self) -> Sequence[Plot]:
        """Plots for this report: of simulated points if there are any, else of measured points."""
        return MODELLED if self.modelled else PLOTS


def draw_all(subject: PlotSubject) -> tuple[dict[str, Drawing], dict[str, str]]:
    """Draw all plots of a report, in the order of the catalogue.

    Return two mappings: name of a plot -> its files, and name of a plot that has no data -> reason.
    """
    drawings: dict[str, Drawing] = {}
    undrawn: dict[str, str] = {}
    gc.freeze()
    for plot in subject.plots:
        drawn = draw(plot.name, subject)
        if isinstance(drawn, Missing):
            undrawn[plot.name] = drawn.reason
        else:
            drawings[plot.name] = drawn
        # Figures hold large images and contain reference cycles, so only the garbage collector frees them.
        gc.collect()
    for index in range(1, len(subject.ratios)):
        drawn = draw(RATIOS.name, subject, view=index)
        if not isinstance(drawn, Missing):
            drawings[view_name(index)] = drawn
        gc.collect()
    return drawings, undrawn


def painter_of(plot: Plot) -> Callable[..., Figure | Missing]:
    """Return the function that draws a plot, from a module in this folder."""
    module_name, function = plot.painter.split(".")
    module = importlib.import_module(f"copyscope.report.plots.{module_name}")
    painter: Callable[..., Figure | Missing] = getattr(module, function)
    return painter


def figure_of(name: str, subject: PlotSubject, view: int = 0) -> Figure | Missing:
    """Return the figure of a plot, or the reason why the plot has no data.

    view: index of the setting, for a plot of ratios
    """
    from copyscope.report.plots.grid import drawing_settings  # noqa: PLC0415 (imports matplotlib)

    plot = next(plot for plot in (*PLOTS, *MODELLED) if plot.name == name)
    subject = replace(subject, ratios=subject.ratios[view:])
    data = (plot, subject.rows) if plot.curves else (getattr(subject, plot.subject),)
    with drawing_settings(name):
        return painter_of(plot)(*data, subject.caption)


def make_text_visible(figure: Figure) -> None:
    """Replace control characters in a figure's texts, because names in a record can contain anything."""
    from matplotlib.text import Text  # noqa: PLC0415

    for text in figure.findobj(Text):
        if isinstance(text, Text) and (shown := visible(text.get_text(), lines=True)) != text.get_text():
            text.set_text(shown)


def draw(name: str, subject: PlotSubject, view: int = 0) -> Drawing | Missing:
    """Return a plot as SVG without dates and as PNG, or the reason why it has no data.

    view: index of the setting, for ratios; only setting 0 has a PNG
    """
    figure = figure_of(name, subject, view)
    if isinstance(figure, Missing):
        return figure
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        # An empty label gets a fixed position, so that matplotlib does not measure all tick labels to place
        # it.
        if not axis.label.get_text():
            axis.set_label_coords(0, 0)
    svg = io.BytesIO()
    from copyscope.report.plots.grid import drawing_settings  # noqa: PLC0415 (imports matplotlib)

    with drawing_settings(f"{name} {view}"):
        make_text_visible(figure)
        figure.savefig(svg, format="svg", metadata=NO_METADATA)
        return Drawing(svg.getvalue(), None if view else _png(figure))


def _png(figure: Figure) -> bytes:
    """Return the figure as PNG with 256 colours: a third of the size, faster, and not visibly different."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from PIL import Image  # noqa: PLC0415

    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    # Pillow of Debian 12 reads no memoryview.
    pixels = bytes(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    size = canvas.get_width_height()
    image = Image.frombytes("RGB", size, pixels, "raw", "RGBX")
    # Free the pixels now: the figure refers to its canvas, which would hold them until it is collected.
    del pixels
    canvas.renderer = None
    # Choose the palette from every ninth pixel: five times as fast, and these pixels contain all colours.
    sparse = image.resize((size[0] // 3, size[1] // 3), Image.Resampling.NEAREST)
    colours = sparse.quantize(256, method=Image.Quantize.FASTOCTREE)
    image = image.quantize(palette=colours, dither=Image.Dither.NONE)
    palette = image.getpalette() or []
    triples = [palette[index : index + 3] for index in range(0, len(palette), 3)]
    # The palette makes white slightly grey: restore it.
    image.putpalette([value for triple in triples for value in ([255] * 3 if min(triple) > 252 else triple)])
    data = io.BytesIO()
    image.save(data, format="PNG", dpi=(DPI, DPI))
    return data.getvalue()

"""Draws every plot of the catalogue, in processes of their own: drawing is what a report waits for.

The first is a Python of its own, started before a record is read: it loads matplotlib meanwhile. Forked, it
would take over the locks of threads that it has not (a report has such: pyarrow's), and Python 3.12 and newer
warn of that. It has no threads itself, so it may fork: told what to draw, one painter for each processor,
which have matplotlib and the subject from the start.
"""

from __future__ import annotations

import ctypes
import importlib
import io
import multiprocessing
import os
import runpy
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from copyscope import paths
from copyscope.compare.estimates import Missing
from copyscope.errors import RunError
from copyscope.escaping import visible
from copyscope.render.plots.catalogue import MODELLED, PLOTS, Plot
from copyscope.study.cost_waterfall import Waterfall
from copyscope.study.modelled import ModelPoint
from copyscope.study.table import Row, without_records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 300
PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
FORK = multiprocessing.get_context("fork")
SPAWN = multiprocessing.get_context("spawn")
# By this name it loads the package and calls begin().
MAIN, PAINTERS = str(paths.ROOT / "tools" / "copyscope" / "__main__.py"), "copyscope painters"
# beside the painters
LOADED = (
    *("copyscope.render.plots.matplotlib_settings", "PIL.Image"),
    *("matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg"),
)
# the plots that take longest, so that they begin first
SLOW_FIRST = ("ledger_stack", "misses", "cycles", "saved_copy")


@dataclass(frozen=True)
class Drawing:
    """One plot as files."""

    svg: bytes
    png: bytes


@dataclass(frozen=True)
class Subject:
    """What is drawn: rows and waterfalls as they are, or without their records (`light`)."""

    rows: Sequence[Row]
    saved: Sequence[Waterfall | Missing]
    caption: str
    modelled: Sequence[ModelPoint] = ()

    @property
    def plots(self) -> Sequence[Plot]:
        """What there is to draw."""
        return MODELLED if self.modelled else PLOTS

    def light(self) -> Subject:
        """The same to be sent to another process: the records would be nearly all of it."""
        saved = [
            one
            if isinstance(one, Missing)
            else replace(one, before=without_records(one.before), after=without_records(one.after))
            for one in self.saved
        ]
        rows = [without_records(row) for row in self.rows]
        return Subject(rows, saved, self.caption, self.modelled)


class Studio:
    """The process in which drawing begins; `draw` says what, and returns what is promised."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def draw(self, subject: Subject) -> Future[dict[str, Drawing]]:
        """The files of each plot by its name, in the order of the catalogue."""
        return self._pool.submit(_draw_all, subject.light())


@contextmanager
def studio() -> Iterator[Studio]:
    """Starts it; it waits with matplotlib at hand. Raises RunError when it did not start, or was killed."""
    # The new Python does not know this package yet: of what is sent to it, nothing may be of ours.
    pool = ProcessPoolExecutor(1, SPAWN, runpy.run_path, (MAIN, None, PAINTERS))
    try:
        pool.submit(int)  # the pool starts it when the first work comes
    except (RuntimeError, OSError) as error:  # no thread or process can be started any more
        _end_children()
        raise RunError(f"plots: {error}: free some memory: the records are whole: try again") from error
    try:
        with pool:
            yield Studio(pool)
    except BrokenProcessPool as error:
        raise RunError(
            "plots: a process that draws them did not start or was killed (out of memory?): the records are "
            "whole: try again"
        ) from error
    finally:
        _end_children()


def _end_children() -> None:
    """One that begins only now would miss what it shares with us, and say so in many lines."""
    for process in multiprocessing.active_children():
        process.kill()


def _draw_all(subject: Subject) -> dict[str, Drawing]:
    cpus = os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count()
    names = sorted(
        (p.name for p in subject.plots), key=lambda n: SLOW_FIRST.index(n) if n in SLOW_FIRST else 99
    )
    with ProcessPoolExecutor(min(len(names), cpus or 1), FORK, _take, (subject,)) as painters:
        drawn = dict(zip(names, painters.map(_draw_taken, names), strict=True))
    return {plot.name: drawn[plot.name] for plot in subject.plots}


# What a painter draws: it is there by the fork, and not sent with each plot.
_taken: list[Subject] = []


def _take(subject: Subject) -> None:
    _end_with_parent()
    _taken.append(subject)


def _draw_taken(name: str) -> Drawing:
    return draw(name, _taken[0])


def begin() -> None:
    """What the first does first."""
    _end_with_parent()
    # numpy starts no threads then: a process with threads is not to be forked
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        for plot in (*PLOTS, *MODELLED):
            painter_of(plot)
        for name in LOADED:
            importlib.import_module(name)
    except (ImportError, MemoryError, OSError, SystemError):
        os._exit(1)  # in one line the report says that it did not start


def _end_with_parent() -> None:
    """The report does not wait for ever for a drawing; a painter does not draw for a report that has gone.

    A painter that outlived the process which it draws for would hold the pipe by whose end the report sees
    the death of that one.
    """
    # That the command ends in order on SIGTERM does not mean us: so a pool ends those that are left.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():  # it died before
        os._exit(1)


def painter_of(plot: Plot) -> Callable[..., Figure]:
    """What draws it."""
    module, function = plot.painter.split(".")
    found = importlib.import_module(f"copyscope.render.plots.{module}")
    painter: Callable[..., Figure] = getattr(found, function)
    return painter


def figure_of(name: str, subject: Subject) -> Figure:
    """One plot of the catalogue."""
    from copyscope.render.plots.matplotlib_settings import look  # noqa: PLC0415 (imports matplotlib)

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


def draw(name: str, subject: Subject) -> Drawing:
    """One plot as SVG and PNG without dates."""
    figure = figure_of(name, subject)
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        # a place for no text: looking for one measures all tick labels, in each drawing
        if not axis.label.get_text():
            axis.set_label_coords(0, 0)
    svg = io.BytesIO()
    from copyscope.render.plots.matplotlib_settings import look  # noqa: PLC0415 (imports matplotlib)

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

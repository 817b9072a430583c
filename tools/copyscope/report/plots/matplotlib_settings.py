"""How matplotlib draws every plot; colours.py has the colours and marks."""

import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.font_manager import fontManager

from copyscope.report.plots.colours import FAINT, GRID, INK

matplotlib.use("Agg")
# Neither a matplotlibrc nor the fonts of this machine have a say: the same records are the same bytes.
matplotlib.rcdefaults()
# A letter that the font lacks, as in the name of a machine, is drawn as a box.
warnings.filterwarnings("ignore", message="Glyph .* missing")
_BUNDLED = Path(matplotlib.get_data_path())
fontManager.ttflist = [font for font in fontManager.ttflist if Path(font.fname).is_relative_to(_BUNDLED)]

# fixed ids in SVG files: the same figure is the same bytes
SETTINGS: dict[str, Any] = {
    "svg.hashsalt": "copyscope",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters everywhere
    "font.size": 9,
    "axes.titlesize": 9.5,
    # where it is anyway: left open, every drawing measures all tick labels to find that out
    "axes.titley": 1.0,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 9,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "path.simplify": True,
    "text.parse_math": False,  # a name may hold a $
}


def look() -> AbstractContextManager[None]:
    """While drawing: everything looks as above."""
    # its type lists every name that there is
    return matplotlib.rc_context(SETTINGS)  # type: ignore[arg-type]

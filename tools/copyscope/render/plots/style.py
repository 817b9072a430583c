"""How every plot looks: colours that colour-blind people can tell apart, and marks that grey paper keeps.

The colours are those of Okabe and Ito (Color Universal Design, 2008). Colour is never the only difference:
lines have markers and dashes of their own, bars have hatches.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.font_manager import fontManager

matplotlib.use("Agg")
# Neither a matplotlibrc nor the fonts of this machine have a say: the same records are the same bytes.
matplotlib.rcdefaults()
# A letter that the font lacks, as in the name of a machine, is drawn as a box.
warnings.filterwarnings("ignore", message="Glyph .* missing")
_BUNDLED = Path(matplotlib.get_data_path())
fontManager.ttflist = [font for font in fontManager.ttflist if Path(font.fname).is_relative_to(_BUNDLED)]

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
INK, FAINT, GRID = "#222222", "#666666", "#DDDDDD"

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


@dataclass(frozen=True)
class Mark:
    """How one strategy is drawn."""

    colour: str
    marker: str
    dashes: Literal["-", "--", "-.", ":"]


KNOWN = {
    "null": Mark(FAINT, "x", ":"),
    "per_field": Mark(PURPLE, "v", ":"),
    "two_copy": Mark(VERMILLION, "s", "--"),
    "one_copy": Mark(BLUE, "o", "-"),
    "zero_copy": Mark(GREEN, "^", "-."),
}
SPARE = (Mark(ORANGE, "D", "-"), Mark(SKY, "P", "--"), Mark(BLACK, "*", ":"), Mark(YELLOW, "X", "-."))


def mark_of(impl: str, others: list[str]) -> Mark:
    """The mark of a strategy; one that the table does not know gets a spare one by its place in `others`."""
    return KNOWN.get(impl) or SPARE[others.index(impl) % len(SPARE)]


@dataclass(frozen=True)
class Fill:
    """How one account or stage is drawn in a bar."""

    colour: str
    hatch: str


# Copies have colours; everything else is a shade of grey with a hatch of its own. The shades differ in their
# upper four bits, which is what the 256 colours of the PNG files tell apart.
FILLS = {
    "gather": Fill(PURPLE, "//"),
    "copy_in": Fill(BLUE, ""),
    "pin": Fill(YELLOW, "xx"),
    "encrypt": Fill(YELLOW, ".."),
    "deferred": Fill(VERMILLION, "\\\\"),
    "silent": Fill(BLACK, ""),
    "completion": Fill(ORANGE, ".."),
    "decrypt": Fill(SKY, "xx"),
    "copy_out": Fill(SKY, "--"),
    "mapped": Fill(GREEN, "||"),
    "syscall": Fill("#4D4D4D", ""),
    "skb_alloc": Fill("#B3B3B3", "//"),
    "tcp_ip": Fill("#D9D9D9", ""),
    "device": Fill("#8C8C8C", ""),
    "softirq": Fill("#C6C6C6", "\\\\"),
    "wakeup_sched": Fill("#EDEDED", ".."),
    "lock": Fill("#737373", "xx"),
    "memory": Fill("#A6A6A6", "--"),
    "irq": Fill("#999999", "||"),
    "user": Fill("#FFFFFF", ""),
    "instruments": Fill("#595959", ".."),
    "unattributed": Fill("#FFFFFF", "xx"),
}

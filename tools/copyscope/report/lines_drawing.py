# SPDX-License-Identifier: GPL-2.0-only
"""SVG drawing of the cache lines that each copy in a simulated machine reads and writes."""

from collections.abc import Sequence

from copyscope.base import spelling as units
from copyscope.base.errors import RunError
from copyscope.record.derived import SimulatedRun
from copyscope.record.simulated import Measurement, SimulatedRow
from copyscope.report.model_points import TITLES, cache_bytes, per_kib
from copyscope.report.path_drawing import safe, text
from copyscope.taxonomy.accounts import ACCOUNTS, Leg

# Sizes and positions of the drawing in pixels.
WIDTH, LEFT, TOP = 960, 24, 78
BOX_WIDTH, BOX_HEIGHT = 124, 44
COLUMNS = (LEFT, 286, 548, 812)  # left edges of the boxes: fields, buffer, packets, receiver
LANE_HEIGHT = 122
# Minimum of lines per KiB that an account moves to be drawn.
DRAWN_LINES_MIN = 0.2
# Message size to draw. If this size was not simulated, the largest simulated size is drawn.
USUAL_SIZE_BYTES = 64 << 10
LINE_PX = 2.5  # pixels of a bar per cache line per KiB
# Parts of a bar: (CSS class, origin of the lines).
SOURCES = (("l2", "from L2"), ("llc", "from the last level or the other CPU"), ("memory", "from memory"))
STYLE = """\
svg{background:#fff}
text{font:13px system-ui,sans-serif;fill:#1f2328}
.head{font-size:16px;font-weight:600} .name{font-weight:600} .soft{fill:#59636e}
.box{fill:#f6f8fa;stroke:#59636e} .arrow{stroke:#59636e;stroke-width:2;fill:none} .tip{fill:#59636e}
.none{stroke:#59636e;stroke-width:2;stroke-dasharray:5 4;fill:none}
.l2{fill:#7cb8f7} .llc{fill:#0969da} .memory{fill:#c93c00}
@media (prefers-color-scheme:dark){
svg{background:#0d1117}
text{fill:#e6edf3} .soft{fill:#9198a1} .tip{fill:#9198a1}
.box{fill:#161b22;stroke:#9198a1} .arrow,.none{stroke:#9198a1}
.l2{fill:#a5d0ff} .llc{fill:#4493f8} .memory{fill:#ff8e57}
}"""


def draw(boot: SimulatedRun) -> str:
    """Return an SVG drawing with a lane for each strategy, at one message size."""
    machine, size_bytes = boot.simulated, _size_to_draw(boot)
    lanes = [measured for measured in machine.measurements if measured.size_bytes == size_bytes]
    bottom = TOP + LANE_HEIGHT * len(lanes) + 16
    model, path = machine.model, machine.path.kind
    sizes = {title: cache_bytes(model, level) for level, title in TITLES.items()}
    levels = ", ".join(f"{title} {units.format_bytes(size)}" for title, size in sizes.items() if size)
    title = f"Cache lines of each copy: {units.format_bytes(size_bytes)} messages over {path}"
    legend = f"cache lines ({model.line_bytes} B) that miss L1D, per KiB: read + written; modelled: {levels};"
    valid = boot.verdict.valid
    subtitle = f"{legend} Linux {machine.kernel.release}" if valid else "INVALID BOOT: do not use its figures"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 24}" role="img">',
        f"<title>{safe(title)}</title>",
        f"<style>{STYLE}</style>",
        text(LEFT, 28, title, "head"),
        text(LEFT, 48, subtitle, "soft", letters_max=160),
    ]
    for number, lane in enumerate(lanes):
        parts += _lane(lane, TOP + LANE_HEIGHT * number)
    return "\n".join([*parts, *_legend(bottom), "</svg>"]) + "\n"


def _size_to_draw(boot: SimulatedRun) -> int:
    """Return the message size to draw. Raises RunError for a simulated command, which has no known sizes."""
    sizes = (measured.size_bytes for measured in boot.simulated.measurements)
    sizes_bytes = {size for size in sizes if size is not None}
    if not sizes_bytes:
        raise RunError(
            "--export drawing: the path of a simulated command is unknown; simulate a strategy instead"
        )
    return USUAL_SIZE_BYTES if USUAL_SIZE_BYTES in sizes_bytes else max(sizes_bytes)


def _lane(measured: Measurement, top: float) -> list[str]:
    """Return a strategy's lane: a box for each place of the data, and an arrow for each copy.

    top: upper edge of the lane
    """
    parts = [text(LEFT, top + 2, measured.impl or "", "name")]
    middle = top + 10
    gathered, entering, late, received = (
        _first_rows(measured, leg) for leg in ("program", "send call", "way", "receive call")
    )
    sent_from = COLUMNS[0]
    parts += _box(sent_from, middle, "sender's fields")
    if gathered:
        parts += _arrow(sent_from, COLUMNS[1], middle, gathered[0].category, gathered)
        sent_from = COLUMNS[1]
        parts += _box(sent_from, middle, "one buffer")
    if late:
        # Until the late copy, the packets refer to the pages of the sender.
        parts += _arrow(sent_from, COLUMNS[1], middle, "pin", entering)
        sent_from = COLUMNS[1]
        parts += _box(sent_from, middle, "the same pages")
        parts += _arrow(sent_from, COLUMNS[2], middle, late[0].category, late)
    elif entering:
        parts += _arrow(sent_from, COLUMNS[2], middle, entering[0].category, entering)
    parts += _box(COLUMNS[2], middle, "packets")
    if pages := _rows(measured, "memory"):
        parts += _draw_count(COLUMNS[2] + BOX_WIDTH / 2, middle + BOX_HEIGHT + 16, pages, "pages: ")
    if received:
        parts += _arrow(COLUMNS[2], COLUMNS[3], middle, received[0].category, received)
    return [*parts, *_box(COLUMNS[3], middle, "receiver")]


def _arrow(start: float, end: float, top: float, name: str, rows: Sequence[SimulatedRow]) -> list[str]:
    """Return an arrow from the box at `start` to the box at `end`, with the number of cache lines moved.

    name: account that names the arrow
    rows: rows that count the moved lines
    """
    account = ACCOUNTS[name]
    begin, height = start + BOX_WIDTH, top + BOX_HEIGHT / 2
    css_class, middle = "arrow" if account.is_copy else "none", (begin + end) / 2
    return [
        f'<path class="{css_class}" d="M{begin:g} {height:g}H{end - 10:g}"/>',
        f'<path class="tip" d="M{end:g} {height:g}l-12 -7v14z"/>',
        text(middle, height - 8, account.label or account.title, "name", "middle"),
        *_draw_count(middle, height + 18, rows),
    ]


def _draw_count(middle: float, top: float, rows: Sequence[SimulatedRow], prefix: str = "") -> list[str]:
    """Return the numbers of lines read and written (`16.3 + 15.4`) above a bar.

    The bar is divided by the origin of the lines, such as L2 or memory.

    middle: horizontal centre of the text and the bar
    prefix: text before the numbers
    """
    read, written = (_sum(rows, f"l1d_{kind}_misses") for kind in ("load", "store"))
    l1d, l2, llc = (
        _sum(rows, f"{level}_load_misses", f"{level}_store_misses") for level in ("l1d", "l2", "llc")
    )
    parts = [
        text(
            middle, top, f"{prefix}{units.format_tenths(read)} + {units.format_tenths(written)}", "", "middle"
        )
    ]
    left = middle - l1d * LINE_PX / 2
    for (css_class, _), lines in zip(SOURCES, (l1d - l2, l2 - llc, llc), strict=True):
        width = max(0.0, lines) * LINE_PX
        if width >= 0.5:
            parts.append(
                f'<rect class="{css_class}" x="{left:.1f}" y="{top + 6:g}" width="{width:.1f}" height="9"/>'
            )
        left += width
    return parts


def _first_rows(measured: Measurement, leg: Leg) -> list[SimulatedRow]:
    """Return the rows of the first account in a part of the path (`leg`) that has enough lines to draw."""
    accounts = (_rows(measured, account.name) for account in ACCOUNTS.values() if account.leg == leg)
    return next(filter(None, accounts), [])


def _rows(measured: Measurement, name: str) -> list[SimulatedRow]:
    """Return the rows of an account or stage, or no rows if they move too few lines to draw."""
    rows = [row for row in measured.rows if row.category == name]
    return rows if _sum(rows, "l1d_load_misses", "l1d_store_misses") >= DRAWN_LINES_MIN else []


def _sum(rows: Sequence[SimulatedRow], *names: str) -> float:
    """Return the sum of the named counts per KiB over all rows. `names`: keys of simulated.COUNTED."""
    return sum(per_kib(row, name) for row in rows for name in names)


def _legend(top: float) -> list[str]:
    """Return the legend for the bars: the colour of each origin, and the length of a bar."""
    parts, left = [], float(LEFT)
    for css_class, meaning in SOURCES:
        parts.append(
            f'<rect class="{css_class}" x="{left:g}" y="{top - 9:g}" width="{16 * LINE_PX:g}" height="9"/>'
        )
        parts.append(text(left + 16 * LINE_PX + 8, top, meaning, "soft"))
        left += 300 if css_class == "llc" else 150
    return [*parts, text(WIDTH - LEFT, top, "a bar of this length: 16 lines (1 KiB)", "soft", "end")]


def _box(x: float, y: float, title: str) -> list[str]:
    return [
        f'<rect class="box" x="{x:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>',
        text(x + BOX_WIDTH / 2, y + 27, title, "", "middle"),
    ]

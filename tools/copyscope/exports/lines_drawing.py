"""Where the lines of each copy go, as an SVG: a simulated record in, text out."""

from collections.abc import Sequence

from copyscope import units
from copyscope.exports.path_drawing import safe, text
from copyscope.record.derived import SimulatedRun
from copyscope.record.simulated import Measurement, Row
from copyscope.study.modelled import TITLES, per_kib, size_of

WIDTH, LEFT, TOP = 960, 24, 78
BOX_WIDTH, BOX_HEIGHT = 124, 44
COLUMNS = (LEFT, 286, 548, 812)  # left edges: fields, one buffer, packets, the receiver
LANE = 122
LEAST = 0.2  # lines per KiB
LINE_PX = 2.5  # of a bar, for each line per KiB
# What stands above an arrow: shorter than on a screen.
NAMES = {
    "gather": "own memcpy",
    "copy_in": "copy to kernel",
    "pin": "page pinning",
    "deferred": "late copy",
    "copy_out": "copy to receiver",
}
# A part of a bar: how it looks, from which level its lines came.
SOURCES = (("l2", "from L2"), ("llc", "from the last level or the other CPU"), ("memory", "from memory"))
STYLE = """\
text{font:13px system-ui,sans-serif;fill:#1f2328}
.head{font-size:16px;font-weight:600} .name{font-weight:600} .soft{fill:#59636e}
.box{fill:#f6f8fa;stroke:#59636e} .arrow{stroke:#59636e;stroke-width:2;fill:none} .tip{fill:#59636e}
.none{stroke:#59636e;stroke-width:2;stroke-dasharray:5 4;fill:none}
.l2{fill:#7cb8f7} .llc{fill:#0969da} .memory{fill:#c93c00}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3} .soft{fill:#9198a1} .tip{fill:#9198a1}
.box{fill:#161b22;stroke:#9198a1} .arrow,.none{stroke:#9198a1}
.l2{fill:#a5d0ff} .llc{fill:#4493f8} .memory{fill:#ff8e57}
}"""


def sizes_of(boot: SimulatedRun) -> set[int]:
    """Those that can be drawn; of a command nobody says what it sends."""
    return {one.size_bytes for one in boot.simulated.measurements if one.size_bytes is not None}


def draw(boot: SimulatedRun, size_bytes: int) -> str:
    """A lane for each strategy that was counted at this size."""
    machine = boot.simulated
    lanes = [one for one in machine.measurements if one.size_bytes == size_bytes]
    foot = TOP + LANE * len(lanes) + 16
    model, path = machine.model, machine.path.kind
    sizes = {title: size_of(model, level) for level, title in TITLES.items()}
    levels = ", ".join(f"{title} {units.format_bytes(size)}" for title, size in sizes.items() if size)
    what = f"Where the lines go: {units.format_bytes(size_bytes)} messages over {path}"
    how = f"lines of {model.line_bytes} B that are not in L1D, per KiB: read + written; modelled: {levels};"
    valid = boot.verdict.valid
    below = f"{how} Linux {machine.kernel.release}" if valid else "INVALID BOOT: do not use its figures"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {foot + 24}" role="img">',
        f"<title>{safe(what)}</title>",
        f"<style>{STYLE}</style>",
        text(LEFT, 28, what, "head"),
        text(LEFT, 48, below, "soft", most=160),
    ]
    for number, one in enumerate(lanes):
        parts += _lane(one, TOP + LANE * number)
    return "\n".join([*parts, *_legend(foot), "</svg>"]) + "\n"


def _lane(one: Measurement, top: float) -> list[str]:
    parts = [text(LEFT, top + 2, one.impl or "", "name")]
    middle = top + 10
    entering = _of(one, "copy_in") or _of(one, "pin")
    late = _of(one, "deferred") or _of(one, "silent")
    first = COLUMNS[0]
    parts += _box(first, middle, "sender's fields")
    if gathered := _of(one, "gather"):
        parts += _arrow(first, COLUMNS[1], middle, NAMES["gather"], gathered)
        first = COLUMNS[1]
        parts += _box(first, middle, "one buffer")
    if late:
        # The packets refer to the sender's pages, until somebody needs pages of their own.
        parts += _arrow(first, COLUMNS[1], middle, NAMES["pin"], entering, copies=False)
        first = COLUMNS[1]
        parts += _box(first, middle, "the same pages")
        parts += _arrow(first, COLUMNS[2], middle, NAMES["deferred"], late)
    elif entering:
        name = entering[0].category
        parts += _arrow(first, COLUMNS[2], middle, NAMES[name], entering, copies=name != "pin")
    parts += _box(COLUMNS[2], middle, "packets")
    if pages := _of(one, "memory"):
        parts += _count(COLUMNS[2] + BOX_WIDTH / 2, middle + BOX_HEIGHT + 16, pages, "pages: ")
    if taken := _of(one, "copy_out"):
        parts += _arrow(COLUMNS[2], COLUMNS[3], middle, NAMES["copy_out"], taken)
    return [*parts, *_box(COLUMNS[3], middle, "receiver")]


def _arrow(
    start: float, end: float, top: float, name: str, rows: Sequence[Row], *, copies: bool = True
) -> list[str]:
    begin, height = start + BOX_WIDTH, top + BOX_HEIGHT / 2
    look, middle = "arrow" if copies else "none", (begin + end) / 2
    return [
        f'<path class="{look}" d="M{begin:g} {height:g}H{end - 10:g}"/>',
        f'<path class="tip" d="M{end:g} {height:g}l-12 -7v14z"/>',
        text(middle, height - 8, name, "name", "middle"),
        *_count(middle, height + 18, rows),
    ]


def _count(middle: float, top: float, rows: Sequence[Row], before: str = "") -> list[str]:
    """`16.3 + 15.4`, and a bar of as many lines by where they came from."""
    read, written = (_sum(rows, f"l1d_{kind}_misses") for kind in ("load", "store"))
    l1d, l2, llc = (
        _sum(rows, f"{level}_load_misses", f"{level}_store_misses") for level in ("l1d", "l2", "llc")
    )
    parts = [
        text(
            middle, top, f"{before}{units.format_tenths(read)} + {units.format_tenths(written)}", "", "middle"
        )
    ]
    left = middle - l1d * LINE_PX / 2
    for (look, _), lines in zip(SOURCES, (l1d - l2, l2 - llc, llc), strict=True):
        wide = max(0.0, lines) * LINE_PX
        if wide >= 0.5:
            parts.append(
                f'<rect class="{look}" x="{left:.1f}" y="{top + 6:g}" width="{wide:.1f}" height="9"/>'
            )
        left += wide
    return parts


def _of(one: Measurement, name: str) -> list[Row]:
    """The rows of an account or stage that are worth an arrow."""
    found = [row for row in one.rows if row.category == name]
    return found if _sum(found, "l1d_load_misses", "l1d_store_misses") >= LEAST else []


def _sum(rows: Sequence[Row], *names: str) -> float:
    return sum(per_kib(row, name) for row in rows for name in names)


def _legend(top: float) -> list[str]:
    parts, left = [], float(LEFT)
    for look, meaning in SOURCES:
        parts.append(
            f'<rect class="{look}" x="{left:g}" y="{top - 9:g}" width="{16 * LINE_PX:g}" height="9"/>'
        )
        parts.append(text(left + 16 * LINE_PX + 8, top, meaning, "soft"))
        left += 300 if look == "llc" else 150
    return [*parts, text(WIDTH - LEFT, top, "a bar of this length: 16 lines, which is 1 KiB", "soft", "end")]


def _box(x: float, y: float, title: str) -> list[str]:
    return [
        f'<rect class="box" x="{x:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>',
        text(x + BOX_WIDTH / 2, y + 27, title, "", "middle"),
    ]

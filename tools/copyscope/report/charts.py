"""Curves as parts of a page: where each line, mark and letter of the drawing stands."""

from collections.abc import Iterator
from dataclasses import dataclass

from copyscope.report.blocks import Crossing, Curve, Curves, Table
from copyscope.stats import Estimate
from copyscope.study.wording import interval, number

WIDTH, HEIGHT = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 38, 12, 44, 48
# What is far above would press all else together on a linear axis: it is a number at the upper edge.
HIGHEST = 2.5
DASHES = {"-": "", "--": "6 3", "-.": "6 3 1 3", ":": "1.5 3"}
# Of the marks of the plots those that are no circle, around 0.
MARKS = {
    "s": "M-4-4h8v8h-8z",
    "^": "M0-5L5 4H-5z",
    "v": "M0 5L5-4H-5z",
    "D": "M0-5L5 0 0 5-5 0z",
    "x": "M-4-4L4 4M4-4L-4 4",
    "X": "M-4-4L4 4M4-4L-4 4",
    "P": "M-5 0H5M0-5V5",
    "h": "M-5 0L-2.5-4.5H2.5L5 0 2.5 4.5H-2.5z",
}
ROUND = "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z"


@dataclass(frozen=True)
class Text:
    x: str
    y: str
    said: str
    anchor: str = "middle"
    colour: str = ""


@dataclass(frozen=True)
class Point:
    """`said`: what is shown of it when a pointer rests on it."""

    x: str
    y: str
    said: str


@dataclass(frozen=True)
class Line:
    """`path`: through all points; `intervals`: a stroke at each; `crossing`: along the line at 1.

    `band`: over the interval of the crossing.
    """

    name: str
    colour: str
    dash: str
    shape: str
    path: str
    intervals: str
    points: list[Point]
    band: str
    crossing: str
    crossing_said: str


@dataclass(frozen=True)
class Drawn:
    """`grid`: (class, path)."""

    width: int
    height: int
    grid: list[tuple[str, str]]
    texts: list[Text]
    lines: list[Line]


def drawn(block: Curves) -> Drawn:
    """The drawing of some curves."""
    known = [value for curve in block.curves for value in curve.values if value is not None]
    top = min(HIGHEST, 1.08 * max([1.1, *(value.value for value in known)]))
    levels = _levels(top)
    grid = [("one" if one == 1 else "grid", f"M{LEFT} {_up(one, top)}H{WIDTH - RIGHT}") for one in levels]
    texts = [*_labels(block, top), *_beyond(block, top)]
    return Drawn(WIDTH, HEIGHT, grid, texts, [_line(curve, len(block.places), top) for curve in block.curves])


def numbers(block: Curves) -> Table:
    """What is drawn, as a table."""
    rows = [
        [place, *(_spelled(curve.values[index]) for curve in block.curves)]
        for index, place in enumerate(block.places)
    ]
    columns = [block.across, *(curve.name for curve in block.curves)]
    return Table(columns, rows, frozenset(range(1, len(columns))))


def _spelled(value: Estimate | None) -> str:
    if value is None:
        return "n/a"
    ends = "" if value.ends is None else f" [{value.ends[0]:.2f}, {value.ends[1]:.2f}]"
    return f"{value.value:.2f}{ends}"


def _levels(top: float) -> list[float]:
    step = 0.25 if top <= 1.5 else 0.5
    return [line * step for line in range(int(top / step) + 1)]


def _labels(block: Curves, top: float) -> Iterator[Text]:
    for value in _levels(top):
        yield Text(str(LEFT - 5), _up(value, top, 4), f"{value:g}", "end")
    # as many as have room beside each other
    each = -(-len(block.places) * 44 // (WIDTH - LEFT - RIGHT))
    for index, place in enumerate(block.places):
        if index % each == 0:
            short = place.replace("iB", "").replace(" ", "")
            yield Text(_across(index, len(block.places)), str(HEIGHT - BOTTOM + 18), short)
    yield Text(f"{(LEFT + WIDTH - RIGHT) / 2:g}", str(HEIGHT - 8), block.across)


def _line(curve: Curve, count: int, top: float) -> Line:
    known = [(_across(at, count), value) for at, value in enumerate(curve.values) if value is not None]
    intervals = (
        f"M{x} {_up(value.ends[0], top)}V{_up(value.ends[1], top)}" for x, value in known if value.ends
    )
    points = [
        Point(x, _up(value.value, top), f"{curve.name}: {number(value.value)} times, {interval(value)}")
        for x, value in known
    ]
    band, crossing = _crossing(curve.crossing, count, top) if curve.crossing else ("", "")
    return Line(
        curve.name,
        curve.mark.colour,
        DASHES[curve.mark.dashes],
        MARKS.get(curve.mark.marker, ROUND),
        "M" + "L".join(f"{point.x} {point.y}" for point in points),
        "".join(intervals),
        points,
        band,
        crossing,
        curve.crossing.said if curve.crossing else "",
    )


def _crossing(found: Crossing, count: int, top: float) -> tuple[str, str]:
    """A band over its interval; and along the line at 1, with strokes at its middle and each known end."""
    low, high = (
        f"{LEFT}" if found.low is None else _across(found.low, count),
        f"{WIDTH - RIGHT}" if found.high is None else _across(found.high, count),
    )
    y, above, below = _up(1, top), _up(1, top, -5), _up(1, top, 5)
    strokes = [(_across(found.at, count), _up(1, top, -9), _up(1, top, 9))]
    strokes += [(x, above, below) for x, end in ((low, found.low), (high, found.high)) if end is not None]
    band = f"M{low} {TOP}H{high}V{HEIGHT - BOTTOM}H{low}z"
    return band, f"M{low} {y}H{high}" + "".join(f"M{x} {begin}V{end}" for x, begin, end in strokes)


def _beyond(block: Curves, top: float) -> Iterator[Text]:
    """What is above the scale as numbers at its upper edge, the least lowest."""
    for index in range(len(block.places)):
        there = [(one.values[index], one.mark.colour) for one in block.curves]
        high = sorted((value.value, colour) for value, colour in there if value and value.value > top)
        for line, (value, colour) in enumerate(high):
            x, y = _across(index, len(block.places)), f"{TOP - 9 - 13 * line}"
            yield Text(x, y, number(value), colour=colour if len(high) > 1 else "")


def _across(index: float, count: int) -> str:
    room = WIDTH - LEFT - RIGHT
    return f"{LEFT + room * (index + 0.5) / count:.1f}"


def _up(value: float, top: float, lower: float = 0) -> str:
    """What lies outside stands at the edge."""
    room = HEIGHT - TOP - BOTTOM
    return f"{TOP + room * (1 - max(0.0, min(value, top)) / top) + lower:.1f}"

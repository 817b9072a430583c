"""Bars and curves as parts of a page: as wide as there is room, readable as text."""

from collections.abc import Iterator

from copyscope.escaping import for_html
from copyscope.report.blocks import Bars, Curve, Curves, Table
from copyscope.report.plots.colours import Mark
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
    "*": "M-5 0H5M0-5V5M-4-4L4 4M4-4L-4 4",
}
ROUND = "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z"


def bars(block: Bars) -> str:
    """A list: each line says its numbers, and its bar shows them."""
    keys = "".join(
        f'<li><i style="background:{colour}"></i>{for_html(name)}</li>' for colour, name in block.legend
    )
    lines = []
    for bar in block.bars:
        boxes = "".join(
            f'<i style="left:{100 * box.left:.2f}%;width:{100 * box.width:.2f}%;background:{box.colour}"'
            f' title="{for_html(box.name)}"></i>'
            for box in bar.boxes
        )
        lines.append(
            f"<li><b>{for_html(bar.label)}</b>"
            f'<span class="track" aria-hidden="true">{boxes}</span><span>{for_html(bar.text)}</span></li>'
        )
    legend = f'<ul class="keys">{keys}</ul>' if keys else ""
    title = f"<figcaption>{for_html(block.title)}</figcaption>"
    return f'<figure>{title}{legend}<ul class="bars">{"".join(lines)}</ul></figure>'


def curves(block: Curves) -> str:
    """A drawing, with its numbers in a table that is folded away."""
    known = [value for curve in block.curves for value in curve.values if value is not None]
    top = min(HIGHEST, 1.08 * max([1.1, *(value.value for value in known)]))
    said = f"{block.title}, along the {block.across}; the numbers are in the table below"
    parts = [*_axes(block, top), *(part for curve in block.curves for part in _curve(curve, block, top))]
    parts += _beyond(block, top)
    legend = "".join(f"<li>{_sample(curve.mark)}{for_html(curve.name)}</li>" for curve in block.curves)
    return (
        f'<figure class="curves"><figcaption>{for_html(block.title)}</figcaption>'
        f'<ul class="keys">{legend}</ul>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{for_html(said)}">{"".join(parts)}</svg>'
        f"</figure>"
    )


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
    ends = "" if value.low is None or value.high is None else f" [{value.low:.2f}, {value.high:.2f}]"
    return f"{value.value:.2f}{ends}"


def _axes(block: Curves, top: float) -> Iterator[str]:
    step = 0.25 if top <= 1.5 else 0.5
    for line in range(int(top / step) + 1):
        value = line * step
        y = _up(value, top)
        kind = "one" if value == 1 else "grid"
        yield f'<path class="{kind}" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text x="{LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    # as many as have room beside each other
    each = -(-len(block.places) * 44 // (WIDTH - LEFT - RIGHT))
    for index, place in enumerate(block.places):
        if index % each == 0:
            x = _across(index, len(block.places))
            label = for_html(place.replace("iB", "").replace(" ", ""))
            yield f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{label}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{for_html(block.across)}</text>'


def _curve(curve: Curve, block: Curves, top: float) -> Iterator[str]:
    points = [
        (_across(index, len(block.places)), value)
        for index, value in enumerate(curve.values)
        if value is not None
    ]
    style = f'stroke="{curve.mark.colour}" fill="none"'
    dash = f' stroke-dasharray="{DASHES[curve.mark.dashes]}"' if DASHES[curve.mark.dashes] else ""
    inside = "L".join(f"{x:.1f} {_up(value.value, top):.1f}" for x, value in points)
    if inside:
        yield f'<path {style} stroke-width="2"{dash} d="M{inside}"/>'
    for x, value in points:
        said = f"{curve.name}: {number(value.value)} times, {interval(value)}"
        if value.low is not None and value.high is not None:
            ends = f"M{x:.1f} {_up(value.low, top):.1f}V{_up(value.high, top):.1f}"
            yield f'<path {style} d="{ends}"/>'
        y, shape = _up(value.value, top), MARKS.get(curve.mark.marker, ROUND)
        yield (
            f'<path class="mark" transform="translate({x:.1f} {y:.1f})" d="{shape}"'
            f' stroke="{curve.mark.colour}" fill="{curve.mark.colour}"><title>{for_html(said)}</title></path>'
        )


def _beyond(block: Curves, top: float) -> Iterator[str]:
    """What is above the scale as numbers at its upper edge, the least lowest."""
    for index in range(len(block.places)):
        there = [(one.values[index], one.mark.colour) for one in block.curves]
        high = sorted((value.value, colour) for value, colour in there if value and value.value > top)
        for line, (value, colour) in enumerate(high):
            x, y = _across(index, len(block.places)), TOP - 9 - 13 * line
            style = f' style="fill:{colour}"' if len(high) > 1 else ""
            yield f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle"{style}>{number(value)}</text>'


def _sample(mark: Mark) -> str:
    """A line with its mark, for the legend."""
    dash = DASHES[mark.dashes]
    return (
        f'<svg width="34" height="12" viewBox="-17 -6 34 12" aria-hidden="true" stroke="{mark.colour}">'
        f'<path d="M-17 0H17" stroke-width="2"{f" stroke-dasharray={dash!r}" if dash else ""}/>'
        f'<path class="mark" d="{MARKS.get(mark.marker, ROUND)}" fill="{mark.colour}"/></svg>'
    )


def _across(index: int, count: int) -> float:
    room = WIDTH - LEFT - RIGHT
    return LEFT + room * (index + 0.5) / count


def _up(value: float, top: float) -> float:
    """What lies outside stands at the edge."""
    room = HEIGHT - TOP - BOTTOM
    return TOP + room * (1 - max(0.0, min(value, top)) / top)

"""Why zero-copy does not make a watched program faster: the dearest problem first, and what to change."""

from collections.abc import Sequence

from rich.text import Text

from copyscope import units
from copyscope.record.portrait import Problem, Why
from copyscope.show.layout import heading, wrap


def why_lines(why: Why, width: int, room: int | None = None, *, explain: bool = False) -> list[Text]:
    """`room`: of the lines; problems without room are counted. `explain`: the evidence of each."""
    lines = heading("WHY IS ZERO-COPY NOT FASTER?", "what each problem costs; 95 % intervals", width)
    if not why.problems:
        return lines + wrap(f"{why.sentence}.", width, indent=2, style="bold")
    # Where there is no room for the evidence of all, the first has its own.
    every = sum(len(_problem_lines(1, one, width, evidence=True)) for one in why.problems)
    whole = explain or room is None or len(lines) + every <= room
    for number, one in enumerate(why.problems):
        found = _problem_lines(number + 1, one, width, evidence=whole or number == 0)
        if room is not None and number and len(lines) + len(found) >= room:
            return lines + _left(why.problems[number:], number + 1, width)
        lines += found
    return lines


def _problem_lines(number: int, one: Problem, width: int, *, evidence: bool) -> list[Text]:
    lines = wrap(f"{number}. {one.what}{_cost(one)}", width, indent=3, style="bold")
    if evidence:
        lines += wrap(f"   {one.evidence}", width, indent=3)
    return lines + wrap(f"   change: {one.change}", width, indent=3)


def _left(problems: Sequence[Problem], number: int, width: int) -> list[Text]:
    """In one line: the last by its name, where that fits."""
    text = f"{number}. {problems[0].what}: -v"
    if len(problems) > 1 or len(text) > width:
        text = f"and {len(problems)} more: -v"
    return wrap(text, width, style="dim")


def _cost(one: Problem) -> str:
    """Of CPU time; wall time is in its words."""
    if one.cpu is None:
        return ""
    low, high = f"{one.cpu.low * 100:.0f}", f"{one.cpu.high * 100:.0f}"
    also = " with pinning and notices" if one.code == "copied" else ""
    return f" ({units.format_percent(one.cpu.share)} of its CPU time{also}, {low} to {high})"

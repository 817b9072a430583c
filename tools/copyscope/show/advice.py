"""What would make a watched program copy less, where that was asked for: a line for each remedy, and why."""

from rich.text import Text

from copyscope.record.check import Whole
from copyscope.show.layout import heading, wrap

LEAST = 3  # lines of reasons, however little room there is


def advice_lines(run: Whole, width: int, room: int | None = None) -> list[Text]:
    """`room`: so many lines in all, if the remedies leave any; reasons that have no room are counted."""
    advice = run.derived.advice
    if advice is None:
        return []
    lines = heading("WHAT WOULD HELP?", "shares of its CPU time, with their 95 % intervals", width)
    remedies = advice.remedies
    if not remedies:  # of an older record, or nothing is sent
        return lines + wrap(advice.text, width)
    name = max(len(one.name) for one in remedies)
    for one in remedies:
        row = wrap(f"{one.name:<{name}}  {one.answer:<5}  {one.why}", width, indent=name + 9)
        row[0].stylize("bold", 0, name + 7)
        lines += row
    if advice.measure:
        command = f"to know: {advice.measure} (two minutes), or --crossover with this"
        lines += wrap(command, width, indent=2)
    lines += wrap("why:", width)
    reasons = [wrap(f"- {one}", width, indent=2) for one in advice.reasons or []]
    whole = sum(map(len, reasons))
    left = whole if room is None else max(LEAST, room - len(lines))
    # The last line is for how many more there are.
    left -= whole > left
    for number, reason in enumerate(reasons):
        if len(reason) > left:
            return [*lines, *wrap(f"and {len(reasons) - number} more: -v", width, style="dim")]
        lines += reason
        left -= len(reason)
    return lines

"""What would make a watched program copy less, where that was asked for: a line for each remedy, and why."""

from rich.text import Text

from copyscope.record.check import Whole
from copyscope.record.portrait import Advice
from copyscope.show.layout import heading, wrap

# What each remedy is, and on what evidence it is judged; a line of 80 columns each.
MEANING = {
    "sendfile": "The kernel sends pages of the file itself. By samples in reading files.",
    "MSG_ZEROCOPY": "The kernel sends the program's own pages. By samples in that copy, by path.",
    "kTLS": "The kernel encrypts, also pages of files. By samples in its cipher and copies.",
    "splice": "Received packets are sent on as they are. By bytes in and out of each thread.",
    "io_uring": "Many sends in one system call; each still copies. By samples in system calls.",
    "larger sends": "Fewer calls for as many bytes. By sizes of calls, and samples in them.",
    "fewer user copies": "No memcpy() before the send. By samples in memcpy() and its like.",
}
# For all of them.
ANSWERS_MEAN = ("yes: do it, or in use; no: not possible, or no sign of 5 % to save; n/a: unknown",)


def advice_lines(run: Whole, width: int, room: int | None = None, *, explain: bool = False) -> list[Text]:
    """`room`: so many lines in all, if the remedies leave any; reasons that have no room are counted.

    `explain`: what each remedy is, and how it was judged; that takes the room of reasons.
    """
    advice = run.derived.advice
    if advice is None:
        return []
    lines = heading("WHAT WOULD HELP?", "shares of its CPU time, with their 95 % intervals", width)
    if not advice.remedies:  # of an older record, or nothing is sent
        return lines + wrap(advice.text, width)
    if advice.answer is not None:
        lines += wrap(advice.answer, width, indent=2, style="bold")
    if run.derived.why and run.derived.why.problems:
        lines += wrap(f"Its zero-copy: {run.derived.why.sentence} (copyscope why)", width, indent=2)
    lines += _remedies(advice, width, explain=explain)
    if explain:
        lines += [line for text in ANSWERS_MEAN for line in wrap(text, width, indent=2, style="dim")]
    if advice.measure:
        command = f"To find out: {advice.measure} (two minutes), or --crossover with this"
        lines += wrap(command, width, indent=2)
    reasons = _reasons(advice, width, None if room is None else room - len(lines) - 1)
    # What the rows mean is half of why.
    return lines if explain and len(reasons) == 1 else lines + reasons


def _remedies(advice: Advice, width: int, *, explain: bool) -> list[Text]:
    lines = []
    remedies = advice.remedies or []
    name = max(len(one.name) for one in remedies)
    for one in remedies:
        row = wrap(f"{one.name:<{name}}  {one.answer:<5}  {one.why}", width, indent=name + 9)
        row[0].stylize("bold", 0, name + 7)
        lines += row
        if explain and one.name in MEANING:
            lines += wrap(f"  {MEANING[one.name]}", width, indent=2, style="dim")
    return lines


def _reasons(advice: Advice, width: int, room: int | None) -> list[Text]:
    reasons = [wrap(f"- {one}", width, indent=2) for one in advice.reasons or []]
    whole = sum(map(len, reasons))
    left = whole if room is None else room
    # The last line is for how many more there are.
    left -= whole > left
    lines: list[Text] = []
    for number, reason in enumerate(reasons):
        if len(reason) > left:
            if not lines:
                return wrap("why: -v", width)
            more = wrap(f"and {len(reasons) - number} more: -v", width, style="dim")
            return [*wrap("why:", width), *lines, *more]
        lines += reason
        left -= len(reason)
    return [*wrap("why:", width), *lines]

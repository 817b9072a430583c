# SPDX-License-Identifier: GPL-2.0-only
"""Lines on the findings of two commands: remedies for `advise` and problems for `why`."""

from collections.abc import Sequence

from rich.text import Text

from copyscope.base.spelling import format_percent
from copyscope.judge.advice import rule_of
from copyscope.record.portrait import Advice, Problem, Why
from copyscope.record.run import Run
from copyscope.show.layout import heading, wrap

ANSWERS_MEAN = "yes: helps or in use; maybe: try it; no: impossible or saves <5 %; n/a: unknown"


def advice_lines(run: Run, width: int, room: int | None = None, *, explain: bool = False) -> list[Text]:
    """Return the answer of `advise`, a line for each remedy, and the reasons.

    room: maximum number of lines; the last line states how many reasons did not fit; None for no limit
    explain: print below each remedy what it does and how it was judged
    """
    advice = run.derived.advice
    if advice is None:
        return []
    lines = heading("WHAT WOULD HELP?", "part of its CPU time that each change saves (least to most)", width)
    # Records of old versions, and programs that send nothing, have no remedies.
    if not advice.remedies:
        return lines + wrap(advice.text, width)
    if advice.answer is not None:
        lines += wrap(advice.answer, width, indent=2, style="bold")
    if run.derived.why and run.derived.why.problems:
        lines += wrap(f"Its zero-copy: {run.derived.why.sentence} (copyscope why)", width, indent=2)
    lines += _remedies(advice, width, explain=explain)
    if explain:
        lines += wrap(ANSWERS_MEAN, width, indent=2, style="dim")
    if advice.measure:
        command = f"To find out: {advice.measure} (two minutes), or --crossover with this"
        lines += wrap(command, width, indent=2)
    reasons = _reasons(advice, width, None if room is None else room - len(lines) - 1)
    # The line `why: -v` alone adds nothing if the remedies are already explained.
    return lines if explain and len(reasons) == 1 else lines + reasons


def _remedies(advice: Advice, width: int, *, explain: bool) -> list[Text]:
    """Return a line for each remedy: name, answer and reason. `explain`: add the meaning of each remedy."""
    lines = []
    remedies = advice.remedies or []
    name_width = max(len(remedy.name) for remedy in remedies)
    for remedy in remedies:
        text = f"{remedy.name:<{name_width}}  {remedy.answer:<5}  {remedy.why}"
        row = wrap(text, width, indent=name_width + 9)
        row[0].stylize("bold", 0, name_width + 7)
        lines += row
        rule = rule_of(remedy.name)
        if explain and rule is not None and rule.remedy is not None:
            lines += wrap(f"  {rule.remedy.meaning}", width, indent=2, style="dim")
    return lines


def _reasons(advice: Advice, width: int, room: int | None) -> list[Text]:
    """Return as many reasons as fit, and a last line with the number of reasons that do not fit.

    room: maximum number of lines; None for no limit
    """
    reasons = [wrap(f"- {reason}", width, indent=2) for reason in advice.reasons or []]
    needed = sum(map(len, reasons))
    free_lines = needed if room is None else room
    # The last line is reserved for the number of reasons that do not fit.
    free_lines -= needed > free_lines
    lines: list[Text] = []
    for number, reason in enumerate(reasons):
        if len(reason) > free_lines:
            if not lines:
                return wrap("why: -v", width)
            more = wrap(f"and {len(reasons) - number} more: -v", width, style="dim")
            return [*wrap("why:", width), *lines, *more]
        lines += reason
        free_lines -= len(reason)
    return [*wrap("why:", width), *lines]


def why_lines(why: Why, width: int, room: int | None = None, *, explain: bool = False) -> list[Text]:
    """Return the problems that `why` found, the most expensive first, each with the change that solves it.

    room: maximum number of lines; the last line states how many problems did not fit; None for no limit
    explain: show the evidence of every problem, even beyond `room`
    """
    lines = heading("WHY IS ZERO-COPY NOT FASTER?", "what each problem costs; 95 % intervals", width)
    if not why.problems:
        return lines + wrap(f"{why.sentence}.", width, indent=2, style="bold")
    # If there is no room for the evidence of all problems, only the first one shows its evidence.
    needed = sum(len(_problem_lines(1, problem, width, evidence=True)) for problem in why.problems)
    all_evidence = explain or room is None or len(lines) + needed <= room
    for number, problem in enumerate(why.problems):
        rows = _problem_lines(number + 1, problem, width, evidence=all_evidence or number == 0)
        if room is not None and number and len(lines) + len(rows) >= room:
            return lines + _rest_lines(why.problems[number:], number + 1, width)
        lines += rows
    return lines


def _problem_lines(number: int, problem: Problem, width: int, *, evidence: bool) -> list[Text]:
    lines = wrap(f"{number}. {problem.what}{_cost(problem)}", width, indent=3, style="bold")
    if evidence:
        lines += wrap(f"   {problem.evidence}", width, indent=3)
    return lines + wrap(f"   change: {problem.change}", width, indent=3)


def _rest_lines(problems: Sequence[Problem], number: int, width: int) -> list[Text]:
    """Return one line on the problems that did not fit. If there is only one and its name fits, name it.

    number: number of the first of these problems
    """
    text = f"{number}. {problems[0].what}: -v"
    if len(problems) > 1 or len(text) > width:
        text = f"and {len(problems)} more: -v"
    return wrap(text, width, style="dim")


def _cost(problem: Problem) -> str:
    """Format a problem's share of the CPU time, or "" if unknown."""
    if problem.cpu is None:
        return ""
    share, low, high = format_percent(problem.cpu.share), problem.cpu.low * 100, problem.cpu.high * 100
    rule = rule_of(problem.code)
    note = rule.cost_note if rule else ""
    return f" ({share} of its CPU time{note}, {low:.0f} to {high:.0f})"

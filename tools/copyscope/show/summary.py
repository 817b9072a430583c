"""Several runs of one workload: every run in its own row, invalid ones named and left out."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from rich.console import Console
from rich.text import Text

from copyscope import units
from copyscope.ledger.machine_state import OPENINGS, disturbance_of
from copyscope.record.check import Whole
from copyscope.show.console import print_lines, report_width
from copyscope.show.first_screen import HEIGHT
from copyscope.show.layout import Table, heading, labelled, wrap
from copyscope.show.ledger_table import flow_order, occurring

Key = tuple[str, str, str]  # account, side, context


def render_summary(runs: Sequence[Whole], console: Console) -> None:
    """Goodput of every run, then each account as the median over the valid runs with its range."""
    width = report_width(console)
    valid = [run for run in runs if run.derived.verdict.valid]
    end = _goodput_lines(valid, width) + _account_lines(valid, width)
    lines = _run_lines(runs, len(runs), width)
    # One screen of a terminal, of which a line is the prompt's: each run's report stands above it.
    height = max(console.height, HEIGHT) - 1 if console.is_terminal else len(lines + end)
    shown = len(runs)
    while shown and len(lines + end) > height:
        shown -= 1
        lines = _run_lines(runs, shown, width)
    print_lines(lines + end, console)


def _run_lines(runs: Sequence[Whole], shown: int, width: int) -> list[Text]:
    """The first of them; where not all are shown, invalid ones come first."""
    lines = heading("RUNS", "goodput of the segments without instruments", width)
    more = len(runs) - shown
    if more:
        runs = sorted(runs, key=lambda run: run.derived.verdict.valid)
    table = Table(("run",), "goodput", "messages", "verdict", words=("verdict",))
    reasons: list[Text] = []
    for run in runs[:shown]:
        verdict = run.derived.verdict
        goodput = run.derived.throughput_gbps.unprobed
        opening = OPENINGS.get(disturbance_of(run.derived.machine_state) or "")
        noise = f"; {opening}" if opening else ""
        table.add(
            run.raw.run.id,
            None if goodput is None else units.format_gbps(goodput),
            units.format_count(run.derived.messages),
            f"valid{noise}"
            if verdict.valid
            else f"{'interrupted' if run.is_partial else 'INVALID'}, left out",
        )
        if not verdict.valid:
            others = len(verdict.reasons) - 1
            also = f" (and {others} more)" if others else ""
            reason = f"{run.raw.run.id}: {verdict.reasons[0]}{also}"
            reasons += wrap(reason, width, indent=2, style="red")
        if verdict.next:
            reasons += wrap(f"{run.raw.run.id}: next: {verdict.next}", width, indent=2, style="red")
    lines += table.lines(width) + reasons
    return [*lines, Text(f"and {more} more: see the reports above")] if more else lines


def _goodput_lines(valid: Sequence[Whole], width: int) -> list[Text]:
    values = [g for run in valid if (g := run.derived.throughput_gbps.unprobed) is not None]
    lines = [Text()]
    if not values:
        return lines + labelled("goodput", "n/a: no valid run with an unprobed segment", width)
    middle, low, high = (units.format_gbps(one(values)) for one in (median, min, max))
    text = f"median {middle}, {low} .. {high} ({units.counted(len(values), 'run')})"
    return lines + labelled("goodput", text, width)


def _account_lines(valid: Sequence[Whole], width: int) -> list[Text]:
    lines = heading("COPIES", "ns/KiB: median and range (not an interval) over the valid runs", width)
    values: dict[Key, list[float]] = defaultdict(list)
    for run in valid:
        for row in occurring(run.derived.ledger):
            if row.ns_per_kib is not None:
                values[row.account, row.side, row.context].append(row.ns_per_kib)
    table = Table(("account", "side", "where"), "median", "min..max", "runs")
    for key in sorted(values, key=lambda key: flow_order(*key)):
        numbers = values[key]
        table.add(
            *key,
            units.format_tenths(median(numbers)),
            units.format_interval(min(numbers), max(numbers)),
            f"{len(numbers)} of {len(valid)}",
        )
    return lines + (table.lines(width) or wrap("n/a: no valid run attributes a copy", width, indent=2))

"""Several runs of one workload: every run in its own row, invalid ones named and left out."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from rich.console import Console
from rich.text import Text

from copyscope import units
from copyscope.record.segments import Record
from copyscope.show.console import print_lines, report_width
from copyscope.show.first_screen import HEIGHT
from copyscope.show.layout import Table, heading, labelled, wrap
from copyscope.show.ledger_table import flow_order, occurring

Key = tuple[str, str, str]  # account, side, context


def render_summary(records: Sequence[Record], console: Console) -> None:
    """Goodput of every run, then each account as the median over the valid runs with its range."""
    width = report_width(console)
    valid = [record for record in records if record["verdict"]["valid"]]
    end = _goodput_lines(valid, width) + _account_lines(valid, width)
    lines = _run_lines(records, len(records), width)
    # One screen of a terminal, of which a line is the prompt's: each run's report stands above it.
    height = max(console.height, HEIGHT) - 1 if console.is_terminal else len(lines + end)
    shown = len(records)
    while shown and len(lines + end) > height:
        shown -= 1
        lines = _run_lines(records, shown, width)
    print_lines(lines + end, console)


def _run_lines(records: Sequence[Record], shown: int, width: int) -> list[Text]:
    """The first of them; where not all are shown, invalid ones come first."""
    lines = heading("RUNS", "goodput of the segments without instruments", width)
    more = len(records) - shown
    if more:
        records = sorted(records, key=lambda record: record["verdict"]["valid"])
    table = Table(("run",), "goodput", "messages", "verdict", words=("verdict",))
    reasons: list[Text] = []
    for record in records[:shown]:
        verdict = record["verdict"]
        goodput = record["throughput_gbps"]["unprobed"]
        said = (record.get("machine_state") or {}).get("sentence")
        noise = f"; {said.partition(':')[0]}" if said else ""  # `machine busy` or `unsteady`
        table.add(
            record["run"]["id"],
            None if goodput is None else units.format_gbps(goodput),
            units.format_count(record["messages"]),
            f"valid{noise}" if verdict["valid"] else "INVALID, left out",
        )
        if not verdict["valid"]:
            also = f" (and {others} more)" if (others := len(verdict["reasons"]) - 1) else ""
            reason = f"{record['run']['id']}: {verdict['reasons'][0]}{also}"
            reasons += wrap(reason, width, indent=2, style="red")
        if verdict.get("next"):
            reasons += wrap(f"{record['run']['id']}: next: {verdict['next']}", width, indent=2, style="red")
    lines += table.lines(width) + reasons
    return [*lines, Text(f"and {more} more, whose reports stand above")] if more else lines


def _goodput_lines(valid: Sequence[Record], width: int) -> list[Text]:
    values = [g for record in valid if (g := record["throughput_gbps"]["unprobed"]) is not None]
    lines = [Text()]
    if not values:
        return lines + labelled("goodput", "n/a: no valid run with an unprobed segment", width)
    middle, low, high = (units.format_gbps(one(values)) for one in (median, min, max))
    text = f"median {middle}, {low} .. {high} ({units.counted(len(values), 'run')})"
    return lines + labelled("goodput", text, width)


def _account_lines(valid: Sequence[Record], width: int) -> list[Text]:
    lines = heading("COPIES", "ns/KiB: median and range (not an interval) over the valid runs", width)
    values: dict[Key, list[float]] = defaultdict(list)
    for record in valid:
        for row in occurring(record["ledger"]):
            if row["ns_per_kib"] is not None:
                values[row["account"], row["side"], row["context"]].append(row["ns_per_kib"])
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

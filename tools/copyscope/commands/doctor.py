"""`copyscope doctor`: print what can be measured on this machine, and how to make more measurable."""

import argparse
from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from copyscope.base.arguments import UsageParser, add_options
from copyscope.base.stats import grouped
from copyscope.commands import entry, output_files
from copyscope.doctor.diagnose import diagnose
from copyscope.doctor.findings import Diagnosis, DoctorFinding
from copyscope.show.layout import REPORT_WIDTH, make_console

# Status of a finding -> style of its cell (rich).
STYLES = {"ok": "green", "limited": "yellow", "missing": "bold red", "confounder": "cyan"}
EXAMPLES = """\
examples:
  sudo copyscope doctor                what is limited here, and why
  sudo copyscope doctor -v             every fact
  sudo copyscope doctor --json -       the same as data
"""
OPTIONS = """
--json FILE             write the findings as JSON to FILE ("-": stdout, no table)
"""


def parser() -> UsageParser:
    """Return the parser of `copyscope doctor`."""
    result = UsageParser(
        prog="doctor",
        verbose="also print the findings that are fine",
        usage="%(prog)s [options]",
        description="Try every instrument on this machine; print which instruments work, how to make the"
        " others work, and what may disturb the numbers. Changes no setting. Exit status: 0 copyscope can"
        " measure here, 1 it cannot.",
        epilog=EXAMPLES,
    )
    add_options(result, OPTIONS)
    return result


def _doctor(args: argparse.Namespace) -> int:
    diagnosis = diagnose()
    if args.json != "-":
        print_diagnosis(diagnosis, verbose=args.verbose, console=make_console())
    output_files.write_json_option(diagnosis.as_json(), args.json)
    return 0 if diagnosis.works else entry.FAILED


def print_diagnosis(diagnosis: Diagnosis, *, verbose: bool, console: Console) -> None:
    """Print a table for each area, then the conclusion: the last line stays visible on a terminal.

    verbose: also print findings that report no problem
    """
    width = min(console.width, REPORT_WIDTH)
    areas = grouped(diagnosis.findings, lambda finding: finding.area)
    fine_areas = [area for area, rows in areas.items() if not verbose and not any(map(_is_problem, rows))]
    for area, rows in areas.items():
        if area not in fine_areas:
            console.print(Text(area.upper(), style="bold"))
            console.print(_table(rows, verbose), width=width)
            console.print()
    if fine_areas:
        console.print(Text.assemble(("ok", STYLES["ok"]), f"  {', '.join(fine_areas)}"), width=width)
    if not verbose:
        console.print("every fact: -v; as data: --json -", width=width)
    console.print(Text(diagnosis.sentence, style="bold"), width=width)


def _is_problem(finding: DoctorFinding) -> bool:
    """Return True for a problem that no other finding explains."""
    return finding.status != "ok" and not finding.cause


def _table(findings: Sequence[DoctorFinding], verbose: bool) -> Table:
    """Return the table of an area: a row for each problem, and a row that names all findings that are ok.

    verbose: a row for every finding instead
    """
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(min_width=12, max_width=34)
    table.add_column()
    fine = [finding for finding in findings if finding.status == "ok"]
    shown = findings if verbose else list(filter(_is_problem, findings))
    # Neighbours with the same text share a row: without a PMU, six counters are missing for one reason.
    for _, group in groupby(shown, key=lambda finding: (finding.status, finding.fact, finding.advice)):
        first, *_ = same_text = list(group)
        text = Text(first.fact)
        if first.advice is not None:
            text.append(f"\n→ {first.advice}", style="dim")
        names = ", ".join(finding.name for finding in same_text)
        table.add_row(Text(first.status, STYLES[first.status]), Text(names), text)
    if fine and not verbose:
        names = ", ".join(finding.name.partition(" (")[0] for finding in fine)
        table.add_row(Text("ok", STYLES["ok"]), Text(f"{len(fine)} of {len(findings)}"), Text(names))
    return table


main = entry.make_main("doctor", parser, _doctor)

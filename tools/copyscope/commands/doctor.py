# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope doctor`: print what can be measured on this machine, and how to make more measurable."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from copyscope.base.arguments import UsageParser, add_options
from copyscope.base.stats import grouped
from copyscope.commands import entry, output_files
from copyscope.doctor import known_work
from copyscope.doctor.diagnose import diagnose
from copyscope.doctor.findings import Diagnosis, DoctorFinding
from copyscope.doctor.known_work import CheckedEvent
from copyscope.machine import event_checks
from copyscope.machine.fingerprint import describe_machine
from copyscope.show.layout import REPORT_WIDTH, make_console

# Status of a finding -> style of its cell (rich).
STYLES = {"ok": "green", "limited": "yellow", "missing": "bold red", "confounder": "cyan"}
EXAMPLES = """\
examples:
  sudo copyscope doctor                what is limited here, and why
  sudo copyscope doctor -v             every fact
  sudo copyscope doctor --json -       the same as data
  sudo copyscope doctor --measure      does this PMU count known cache misses?
"""
OPTIONS = """
--measure               only check the PMU: compare its counts with work whose cycles, instructions
                        and cache misses are known
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
        " measure here, 1 it cannot. With --measure: 0 events were measured, 1 this machine counts none.",
        epilog=EXAMPLES,
    )
    add_options(result, OPTIONS)
    return result


def _doctor(args: argparse.Namespace) -> int:
    if args.measure:
        return _measure(args.json)
    diagnosis = diagnose()
    if args.json != "-":
        print_diagnosis(diagnosis, verbose=args.verbose, console=make_console())
    output_files.write_json_option(diagnosis.as_json(), args.json)
    return 0 if diagnosis.works else entry.FAILED


def _measure(json_file: str | None) -> int:
    """Compare the events of the PMU with known work, print and save the verdicts. Raises RunError."""
    machine = describe_machine(tools={})
    checked = known_work.measure(machine)
    if json_file != "-":
        print_checks(checked, make_console())
    output_files.write_json_option({"measured": [asdict(event) for event in checked]}, json_file)
    try:
        event_checks.save(machine.cpu_model, machine.microcode, [event.check for event in checked])
    except OSError as error:
        entry.print_message(f"{error.filename}: {error.strerror}; runs will not know these results")
    return 0


def print_checks(checked: Sequence[CheckedEvent], console: Console) -> None:
    """Print a table for each event: its counts beside the known counts, below its verdict."""
    width = min(console.width, REPORT_WIDTH)
    for event in checked:
        check = event.check
        name = check.event if check.pmu is None else f"{check.event} on {check.pmu}"
        style = STYLES["ok" if check.usable else "limited" if check.usable is None else "missing"]
        console.print(Text.assemble((name, "bold"), "  ", (check.verdict, style)), width=width)
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("  known work", min_width=24, no_wrap=True)
        for title in ("known", "counted", "ratio"):
            table.add_column(title, justify="right", min_width=9, no_wrap=True)
        for count in event.counts:
            ratio = "" if count.ratio is None else f"{count.ratio:.3f}"
            table.add_row(f"  {count.work}", f"{count.known:,}", f"{count.counted:,}", ratio)
        console.print(table, width=width)
    console.print("runs on this processor print n/a for misses that are not usable", width=width)


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

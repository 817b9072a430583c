"""The counters of copyscope beside what the machine counted, in guests whose PMU is the simulator's.

    make check-pmu                  Linux 6.12: all, and docs/reference/pmu.md
    make check-pmu EXTENT=brief     what CI runs; prints, and writes nothing
    make check-pmu BOOTS="arithmetic one_copy-exact"    some boots

arithmetic: counts and samples of a program that reads memory, beside theory.
IMPL-exact, IMPL-sampled: what the collector counts and samples in each copy, beside the machine's own sums by
call stack of the same run.
hybrid: two kinds of cores, of which one has no L1D misses, and a CPU that is offline. few: two counters.
What the guests left is kept in .output/pmu/BOOT, what came of it in results/pmu.json. Nothing depends on how
long anything takes.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import copies
import pmu_page
from copies import EVENTS, GOAL, Figure, Run
from copyscope.errors import RunError
from pmu_guest import Boot, Parts, build, run

LINES_PER_KIB = 16
# What is read again and again (inside), and which misses of it there are: the L1D has 32 KiB, the LLC 512.
READS = (("16 KiB", 0, 0), ("128 KiB", LINES_PER_KIB, 0), ("4 MiB", LINES_PER_KIB, LINES_PER_KIB))
# Of a count beside theory, lines a KiB: the program's own stack, and interrupts.
COUNT_OFF = 0.05
# From one sample to the next: odd, so that it keeps step with nothing.
PERIOD = 997
SAMPLED_KIB = 32768
# So many standard deviations a sum of samples may be off: one of 16,000.
DEVIATIONS = 4
# Of sums over a side, without samples: looks that are half inside.
SIDE_OFF = 0.03
# What was right within the goal is not further off next time than this more.
GOAL_SLACK = 0.03
SIDES = ("sender", "receiver")
# Events whose samples stand for time.
TIME = ("cycles", "ref-cycles", "cpu-clock")

# One instruction is a nanosecond there: what is seen for so long is some hundred messages.
# The last is read next to the copy: L1D misses have the best place here, LLC misses a worse one than alone.
COUNT = "cycles,instructions,LLC-load-misses,L1-dcache-load-misses"
EXACT = (f"--functions --functions-gate 1 --count {COUNT}", "functions", "0.04")
SAMPLED = ("--frequency 8000", "sampler", "0.1")
BRIEF = (
    Boot("one_copy-exact", ("one_copy", *EXACT)),
    Boot("one_copy-sampled", ("one_copy", *SAMPLED)),
    Boot("hybrid", ("one_copy", *SAMPLED), pmu="hybrid=1", cpus=3, offline="2"),
    Boot("few", ("one_copy", *EXACT), pmu="counters=2"),
    Boot("arithmetic", ("reads",), pmu="always=1"),
)
REST = tuple(
    boot
    for impl in ("two_copy", "zero_copy")
    for boot in (
        Boot(f"{impl}-exact", (impl, *EXACT)),
        Boot(f"{impl}-sampled", (impl, *SAMPLED)),
    )
)


def of_arithmetic(boot: Boot) -> list[str]:
    """Counts and samples of `reads`: what theory says."""
    problems = []
    lines = (boot.kept / "counts").read_text().splitlines()
    for (size, *expected), line in zip(READS, lines, strict=True):
        counted = json.loads(line)
        for column, theory in zip(("l1d_misses", "llc_misses"), expected, strict=True):
            found = counted[EVENTS[column][0]] / counted["kib"]
            print(f"  reads of {size:8} {column:12} {found:7.3f} a KiB, theory {theory}")
            if abs(found - theory) > COUNT_OFF:
                problems.append(f"reads of {size}: {column}: {found:.3f} a KiB instead of {theory}")
    samples = json.loads((boot.kept / "samples").read_text())
    once = SAMPLED_KIB * LINES_PER_KIB / PERIOD
    for event, counts in samples.items():
        for name, seen, due in zip(("once", "thrice"), counts, (once, 3 * once), strict=True):
            print(f"  read_{name:7} {event:22} {seen:5} samples, theory {due:.1f}")
            if abs(seen - due) > DEVIATIONS * math.sqrt(due):
                problems.append(f"read_{name}: {event}: {seen} samples instead of {due:.1f}")
    return problems


def show(figure: Figure) -> None:
    said = "n/a" if figure.found is None else f"{figure.found:9.2f}"
    error = "" if figure.error is None else f"{figure.error:+8.1%}"
    deviation = figure.deviation and figure.truth and f"  1 s.d. {figure.deviation / figure.truth:.1%}"
    name = f"{figure.copy} {figure.column}"
    print(f"  {name:26}{figure.truth:9.2f} {said:>9}{error}{deviation or ''} {figure.reason or ''}")


def of_exact(made: Run) -> list[str]:
    """No copy has less than the machine says, no side more than with all hooks; what was right stays so."""
    problems = []
    held = pmu_page.held()
    for figure in copies.exact(made):
        show(figure)
        too_far = figure.error is None or abs(figure.error) > GOAL + GOAL_SLACK
        # Looks only add.
        if (figure.name in held and too_far) or (figure.error is not None and figure.error < -SIDE_OFF):
            problems.append(f"exact: {figure.name}: {figure.found} instead of {figure.truth:.2f} a KiB")
    for side in SIDES:
        problems += of_exact_side(made, side)
    return problems


def of_exact_side(made: Run, side: str) -> list[str]:
    """All rows together: no more than there was, and all of it where stages are hooked, too.

    Of one_copy: some of what two_copy does around its calls is in no row, and some of what is copied late
    is on the time of others.
    """
    problems = []
    everything = any(cell["category"] == "memory" for cell in made.cells)
    for column in EVENTS:
        found = copies.exact_side(made, side, column)
        if found is None:
            print(f"  {side}, {column}: not in every row")
            continue
        error = found[0] / found[1] - 1
        print(f"  {side}, {column} of all rows beside the machine's with the hooks: {error:+.1%}")
        too_far = error > SIDE_OFF or (everything and error < -SIDE_OFF)
        if made.impl == "one_copy" and column != "instructions" and too_far:
            problems.append(f"exact: {side}: {column} of all rows: {error:+.1%}")
    return problems


def of_sampled(made: Run) -> list[str]:
    """Copies and sums over a side are the machine's, within what chance allows."""
    problems = []
    for figure in copies.sampled(made):
        show(figure)
        assert figure.found is not None and figure.deviation is not None
        if abs(figure.found - figure.truth) > DEVIATIONS * figure.deviation:
            problems.append(f"sampled: {figure.name}: {figure.found:.2f} instead of {figure.truth:.2f} a KiB")
    for side in SIDES:
        for column in ("l1d_misses", "llc_misses", "cycles"):
            weight, deviation, true = copies.sampled_side(made, side, column)
            if abs(weight - true) > DEVIATIONS * deviation:
                problems.append(f"sampled: {side}: {column}: {weight / true - 1:+.1%} in all rows")
    return problems


def of_hybrid(made: Run) -> list[str]:
    """Cycles of both kinds of cores; of an event that is on one of them, the truth or nothing."""
    problems = []
    events = {event["name"]: event["status"] for event in made.report["sampler"]["events"]}
    print(f"  events: {events}")
    for row in made.samples:
        if events[row["event"]] == "unsupported":
            problems.append(f"hybrid: {row['event']}: unsupported, and yet there are samples")
            break
    if events["cycles"] == "unsupported":
        problems.append("hybrid: cycles are not sampled, and both kinds of cores count them")
    for copy in copies.COPIES["one_copy"]:
        for column in ("cycles", "llc_misses", "l1d_misses"):
            figure = copies.sampled_copy(made, copy, column)
            if figure is None or (copy, column) == ("copy_out", "l1d_misses"):
                continue
            show(figure)
            assert figure.found is not None and figure.deviation is not None
            if abs(figure.found - figure.truth) > DEVIATIONS * figure.deviation:
                problems.append(f"hybrid: {figure.name}: {figure.found:.2f} instead of {figure.truth:.2f}")
        if not any(row["category"] == copy and row["event"] in TIME for row in made.samples):
            problems.append(f"hybrid: {copy} has no time")
    return problems


def of_few(made: Run) -> list[str]:
    """Events that take turns are called scaled, and how many fit is said. (Ten ticks are no estimate.)"""
    problems = []
    for event in made.report["functions"]["events"]:
        print(f"  {event['name']}: {event['status']}, running {event['running']}: {event['reason']}")
        if event["status"] == "counted" and event["running"] < 0.99:
            problems.append(f"few: {event['name']}: counted, but for {event['running']:.2f} of the time")
        if event["status"] == "scaled" and "--count" not in event["reason"]:
            problems.append(f"few: {event['name']}: nothing says how many events fit")
    if all(event["status"] == "counted" for event in made.report["functions"]["events"]):
        problems.append("few: four events count all the time, on two counters")
    return problems


JUDGES: dict[str, Callable[[Run], list[str]]] = {
    "exact": of_exact,
    "sampled": of_sampled,
    "hybrid": of_hybrid,
    "few": of_few,
}


def judge(boot: Boot) -> list[str]:
    """What is wrong with what a guest left; prints what was found."""
    print(f"{boot.name}:", flush=True)
    try:
        if boot.name == "arithmetic":
            return of_arithmetic(boot)
        made = copies.read(boot.kept, boot.words[0])
        return JUDGES[boot.name.rpartition("-")[2]](made)
    except (OSError, RunError, ValueError, KeyError, IndexError) as error:
        return [f"{boot.name}: {error!r}: see {boot.kept}"]


def start(parts: Parts, boot: Boot) -> str | None:
    """Runs one guest: None, or what went wrong."""
    try:
        run(parts, boot)
    except (RunError, OSError) as error:
        return str(error)
    return None


def release(boot: Boot) -> str:
    """The kernel of a guest."""
    log = (boot.kept / "log.txt").read_text()
    return log.partition("@@BOOTED ")[2].split()[0]


def keep(boots: Sequence[Boot]) -> None:
    """results/pmu.json and its page."""
    made = datetime.now(UTC).strftime("%Y-%m-%d")
    found: dict[str, Any] = {"made": made, "kernel": release(boots[0]), "figures": []}
    for boot in boots:
        tier = boot.name.rpartition("-")[2]
        if tier in ("exact", "sampled"):
            run_of_it = copies.read(boot.kept, boot.words[0])
            found["figures"] += copies.to_rows(list(getattr(copies, tier)(run_of_it)))
    pmu_page.RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    pmu_page.PAGE.write_text(pmu_page.page(found))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    names = [boot.name for boot in (*BRIEF, *REST)]
    parser.add_argument("boots", nargs="*", metavar="BOOT", help=", ".join(names))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="guests at a time")
    parser.add_argument("--brief", action="store_true", help="what CI runs")
    parser.add_argument("--kept", action="store_true", help="judge what is kept, and write it; boot nothing")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.boots) - set(names):
        parser.error(f"{', '.join(sorted(unknown))}: no such boot: {', '.join(names)}")
    every = BRIEF if asked.brief else (*BRIEF, *REST)
    chosen = [boot for boot in (*BRIEF, *REST) if boot.name in asked.boots] or list(every)
    problems: list[str] = []
    if not asked.kept:
        try:
            parts = build()
        except (RunError, subprocess.CalledProcessError) as error:
            print(f"pmu: {error}")
            return 1
        with ThreadPoolExecutor(asked.jobs) as pool:
            problems = [said for said in pool.map(lambda boot: start(parts, boot), chosen) if said]
    if not problems:
        problems = [problem for boot in chosen for problem in judge(boot)]
    print("\n".join(problems) or "pmu: all as it should be")
    if not problems and not asked.brief and not asked.boots:
        keep(chosen)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

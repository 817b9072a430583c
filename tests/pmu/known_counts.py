# SPDX-License-Identifier: GPL-2.0-only
"""Compare copyscope's counters with known counts, in guests whose PMU is fed by the simulator.

    make check-pmu                  Linux 6.12: all, and docs/reference/pmu.md
    make check-pmu EXTENT=brief     the boots that CI runs; writes nothing
    make check-pmu BOOTS="arithmetic one_copy-exact"    some boots

Boots:
arithmetic: counts and samples of a program that reads memory agree with theory, and `doctor --measure`
    says so. It finds each posed PMU that counts LLC misses wrong.
IMPL-exact, IMPL-sampled, IMPL-SIZE-sampled: counts or samples of each copy agree with the machine's own sums
    by call stack. The intervals that the ledger shows for copies hold the machine's counts in 19 of 20 cases.
hybrid: two kinds of cores, one of them without L1D misses, and an offline CPU. few: a PMU with two counters.

Files of the guests are kept in .output/pmu/BOOT, results in results/pmu.json. Nothing depends on durations.
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
from copies import EVENTS, GOAL, SAMPLED_COLUMNS, SIDES, Figure, Run
from copyscope.base import stats
from copyscope.base.errors import RunError
from copyscope.doctor import known_work
from msgspec import convert
from pmu_guest import Boot, Parts, build, run

LINES_PER_KIB = 16
# Size that `reads` reads repeatedly (script `inside`), and misses per KiB of an L1D of 32 KiB and an LLC of
# 512 KiB.
READS = (("16 KiB", 0, 0), ("128 KiB", LINES_PER_KIB, 0), ("4 MiB", LINES_PER_KIB, LINES_PER_KIB))
# Maximum difference between a count and theory, in lines per KiB: the program's own stack, and interrupts.
COUNT_OFF = 0.05
# Sampling period in events. It is odd, so that it stays in step with no loop.
PERIOD = 997
SAMPLED_KIB = 32768
# Maximum error of a sum of samples in standard deviations: exceeded by chance once in 16,000.
DEVIATIONS = 4
# Maximum relative error of sums over a process by hooks: reads that lie partly inside.
SIDE_OFF = 0.03
# A figure that was within the goal may exceed it by this much next time.
GOAL_SLACK = 0.03
LLC = EVENTS["llc_misses"][0]
# Verdicts on LLC misses, in the order in which the script `inside` changes the PMU.
VERDICTS = (
    ("exact", "counts every line read"),
    ("doubled", "not usable: counts 2.00 of known misses (random reads)"),
    (
        "alias",
        "not usable: counts 1.00 misses per line that the cache has; its counts are those of"
        " L1-dcache-load-misses",
    ),
)
# Probability that chance alone leaves as few of the intervals right.
CHANCE_MIN = 1e-4
# Boots until a guest must end by itself. QEMU 7.2 may run code that the kernel is patching, and the guest
# ends with an Oops; on a busy host its interrupts may come too late.
TRIES = 2
# Events whose samples measure time.
TIME = ("cycles", "ref-cycles", "cpu-clock")

# An instruction takes a nanosecond in the guest, so these short measurements see some hundred messages. The
# last event is read closest to the copy: here L1D misses have this best place, and LLC misses a worse one
# than alone.
COUNT = "cycles,instructions,LLC-load-misses,L1-dcache-load-misses"
EXACT = (f"--functions --functions-gate 1 --count {COUNT}", "functions", "0.04")
SAMPLED = ("--frequency 8000", "sampler", "0.1")
# The machine also counts while there is no traffic: then the collector measures its own interrupts.
ALWAYS = "always=1"
# At 8,000 Hz a sample would come every five messages of 4 KiB. Samples then fall into step with the messages:
# copy_out had 9 to 12 % too few, outside its interval.
SPARSE = ("--frequency 1000", "sampler", "0.4")
BRIEF = (
    Boot("one_copy-exact", ("one_copy", "64K", *EXACT)),
    Boot("one_copy-sampled", ("one_copy", "64K", *SAMPLED), pmu=ALWAYS),
    Boot("hybrid", ("one_copy", "64K", *SAMPLED), pmu="hybrid=1", cpus=3, offline="2"),
    Boot("few", ("one_copy", "64K", *EXACT), pmu="counters=2"),
    Boot("arithmetic", ("reads",), pmu="always=1"),
)
REST = (
    Boot("two_copy-exact", ("two_copy", "64K", *EXACT)),
    Boot("zero_copy-exact", ("zero_copy", "64K", *EXACT)),
    Boot("one_copy-4K-sampled", ("one_copy", "4K", *SPARSE), pmu=ALWAYS),
    Boot("one_copy-256K-sampled", ("one_copy", "256K", *SAMPLED), pmu=ALWAYS),
    *(
        Boot(f"{impl}-sampled", (impl, "64K", *SAMPLED), pmu=ALWAYS)
        for impl in ("two_copy", "zero_copy", "sendfile", "uring_send")
    ),
)


def of_arithmetic(boot: Boot) -> list[str]:
    """Compare counts and samples of `reads` with theory, and return the problems."""
    problems = []
    lines = (boot.kept / "counts").read_text().splitlines()
    for (size, *expected), line in zip(READS, lines, strict=True):
        counted = json.loads(line)
        for column, theory in zip(("l1d_misses", "llc_misses"), expected, strict=True):
            misses_per_kib = counted[EVENTS[column][0]] / counted["kib"]
            print(f"  reads of {size:8} {column:12} {misses_per_kib:7.3f} a KiB, theory {theory}")
            if abs(misses_per_kib - theory) > COUNT_OFF:
                problems.append(f"reads of {size}: {column}: {misses_per_kib:.3f} a KiB instead of {theory}")
    samples = json.loads((boot.kept / "samples").read_text())
    once = SAMPLED_KIB * LINES_PER_KIB / PERIOD
    for event, counts in samples.items():
        for name, samples_seen, samples_due in zip(("once", "thrice"), counts, (once, 3 * once), strict=True):
            print(f"  read_{name:7} {event:22} {samples_seen:5} samples, theory {samples_due:.1f}")
            if abs(samples_seen - samples_due) > DEVIATIONS * math.sqrt(samples_due):
                problems.append(f"read_{name}: {event}: {samples_seen} samples instead of {samples_due:.1f}")
    return problems + of_known_work(boot)


def of_known_work(boot: Boot) -> list[str]:
    """Judge the events of each changed PMU by known work, and return the wrong verdicts."""
    problems = []
    lines = (boot.kept / "measured").read_text().splitlines()
    for (pose, due), line in zip(VERDICTS, lines, strict=True):
        events = convert(json.loads(line), known_work.MeasuredCore).events
        for event in events:
            verdict = known_work.judge(event, events).verdict
            print(f"  {pose:8} {event.name:22} {verdict}")
            for count in event.counts:
                print(f"    {count.work:24} known {count.known:7}, counted {count.counted:7}")
            if (event.name == LLC and verdict != due) or (event.name != LLC and "not usable" in verdict):
                problems.append(f"known work: {pose}: {event.name}: {verdict}")
    return problems


def show(figure: Figure) -> None:
    """Print one figure with its error."""
    value = "n/a" if figure.found is None else f"{figure.found:9.2f}"
    error = "" if figure.error is None else f"{figure.error:+8.1%}"
    deviation = figure.deviation and figure.truth and f"  1 s.d. {figure.deviation / figure.truth:.1%}"
    name = f"{figure.copy} {figure.column}"
    print(f"  {name:26}{figure.truth:9.2f} {value:>9}{error}{deviation or ''} {figure.reason or ''}")


def of_exact(run: Run) -> list[str]:
    """Check the exact tier: no copy has fewer counts than the machine's; good figures stay good."""
    problems = []
    within_goal = pmu_page.held()
    for figure in copies.exact(run):
        show(figure)
        too_far = figure.error is None or abs(figure.error) > GOAL + GOAL_SLACK
        # Reads of the counters only add counts.
        if (figure.name in within_goal and too_far) or (
            figure.error is not None and figure.error < -SIDE_OFF
        ):
            problems.append(f"exact: {figure.name}: {figure.found} instead of {figure.truth:.2f} a KiB")
    for side in SIDES:
        problems += of_exact_side(run, side)
    return problems


def of_exact_side(run: Run, side: str) -> list[str]:
    """Check the sum of all rows of a process: at most the machine's count, and equal if stages are hooked.

    Only one_copy is judged: two_copy does some work around its calls in no row, and some late copies run in
    the time of other programs.
    """
    problems = []
    stages_hooked = any(cell["category"] == "memory" for cell in run.cells)
    for column in EVENTS:
        counts = copies.exact_side(run, side, column)
        if counts is None:
            print(f"  {side}, {column}: not in every row")
            continue
        error = copies.relative_error(*counts)
        print(f"  {side}, {column} of all rows beside the machine's with the hooks: {error:+.1%}")
        too_far = error > SIDE_OFF or (stages_hooked and error < -SIDE_OFF)
        if run.impl == "one_copy" and column != "instructions" and too_far:
            problems.append(f"exact: {side}: {column} of all rows: {error:+.1%}")
    return problems


def of_sampled(run: Run) -> list[str]:
    """Check samples: copies and sums over a process agree with the machine, within chance."""
    problems = []
    for figure in copies.sampled(run):
        show(figure)
        assert figure.found is not None and figure.deviation is not None
        if abs(figure.found - figure.truth) > DEVIATIONS * figure.deviation:
            problems.append(f"sampled: {figure.name}: {figure.found:.2f} instead of {figure.truth:.2f} a KiB")
    for shown in copies.shown(run):
        if not shown.holds:
            print(f"  outside: {shown.name}: {shown.low:.0f} to {shown.high:.0f}, truth {shown.truth:.0f}")
    for side in SIDES:
        for column in SAMPLED_COLUMNS:
            print(f"  {side}, {copies.per_interrupt(run, side, column)}")
            weight, deviation, machine_count = copies.sampled_side(run, side, column)
            if abs(weight - machine_count) > DEVIATIONS * deviation:
                error = copies.relative_error(weight, machine_count)
                problems.append(f"sampled: {side}: {column}: {error:+.1%} in all rows")
    return problems


def of_hybrid(run: Run) -> list[str]:
    """Check hybrid cores: cycles of both kinds are sampled. An event of one kind is right or missing."""
    problems = []
    events = {event["name"]: event["status"] for event in run.report["sampler"]["events"]}
    print(f"  events: {events}")
    for row in run.samples:
        if events[row["event"]] == "unsupported":
            problems.append(f"hybrid: {row['event']}: unsupported, and yet there are samples")
            break
    if events["cycles"] == "unsupported":
        problems.append("hybrid: cycles are not sampled, and both kinds of cores count them")
    for copy in copies.COPIES["one_copy"]:
        for column in ("cycles", "llc_misses", "l1d_misses"):
            figure = copies.sampled_copy(run, copy, column)
            if figure is None or (copy, column) == ("copy_out", "l1d_misses"):
                continue
            show(figure)
            assert figure.found is not None and figure.deviation is not None
            if abs(figure.found - figure.truth) > DEVIATIONS * figure.deviation:
                problems.append(f"hybrid: {figure.name}: {figure.found:.2f} instead of {figure.truth:.2f}")
        if not any(row["category"] == copy and row["event"] in TIME for row in run.samples):
            problems.append(f"hybrid: {copy} has no time")
    return problems


def of_few(run: Run) -> list[str]:
    """Check a PMU with few counters: events that share a counter are called scaled, with a reason.

    Their values are not judged, because ten ticks are no estimate.
    """
    problems = []
    for event in run.report["functions"]["events"]:
        print(f"  {event['name']}: {event['status']}, running {event['running']}: {event['reason']}")
        if event["status"] == "counted" and event["running"] < 0.99:
            problems.append(f"few: {event['name']}: counted, but for {event['running']:.2f} of the time")
        if event["status"] == "scaled" and "--count" not in event["reason"]:
            problems.append(f"few: {event['name']}: nothing says how many events fit")
    if all(event["status"] == "counted" for event in run.report["functions"]["events"]):
        problems.append("few: four events count all the time, on two counters")
    return problems


JUDGES: dict[str, Callable[[Run], list[str]]] = {
    "exact": of_exact,
    "sampled": of_sampled,
    "hybrid": of_hybrid,
    "few": of_few,
}


def judge(boot: Boot) -> list[str]:
    """Print the results of a guest, and return their problems."""
    print(f"{boot.name}:", flush=True)
    try:
        if boot.name == "arithmetic":
            return of_arithmetic(boot)
        run = copies.read(boot.kept, *boot.words[:2])
        return JUDGES[boot.name.rpartition("-")[2]](run)
    except (OSError, RunError, ValueError, KeyError, IndexError) as error:
        return [f"{boot.name}: {error!r}: see {boot.kept}"]


def start(parts: Parts, boot: Boot) -> str | None:
    """Run one guest. Return None, or the error of its last try."""
    failure = None
    for attempt in range(1, TRIES + 1):
        try:
            run(parts, boot)
            return None
        except (RunError, OSError) as error:
            failure = str(error)
            print(f"{boot.name}, try {attempt} of {TRIES}: {failure}", flush=True)
    return failure


def of_intervals(boots: Sequence[Boot]) -> list[str]:
    """Check that 19 of 20 intervals of copies hold the machine's count, within chance."""
    runs = [copies.read(boot.kept, *boot.words[:2]) for boot in boots if boot.name.endswith("-sampled")]
    shown = [row for run in runs for row in copies.shown(run)]
    outside = sum(not row.holds for row in shown)
    print(f"intervals that hold the truth: {len(shown) - outside} of {len(shown)}")
    if stats.binomial_tail(outside, len(shown), 1 - stats.LEVEL) >= CHANCE_MIN:
        return []
    return [f"intervals: {outside} of {len(shown)} do not hold the truth"]


def release(boot: Boot) -> str:
    """Return the kernel version of a guest."""
    log = (boot.kept / "log.txt").read_text()
    return log.partition("@@BOOTED ")[2].split()[0]


def keep(boots: Sequence[Boot]) -> None:
    """Write results/pmu.json and its page."""
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    results: dict[str, Any] = {"made": date, "kernel": release(boots[0]), "figures": []}
    for boot in boots:
        tier = boot.name.rpartition("-")[2]
        if tier in ("exact", "sampled"):
            run = copies.read(boot.kept, *boot.words[:2])
            results["figures"] += copies.to_rows(list(getattr(copies, tier)(run)))
    pmu_page.RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    pmu_page.PAGE.write_text(pmu_page.page(results))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    names = [boot.name for boot in (*BRIEF, *REST)]
    parser.add_argument("boots", nargs="*", metavar="BOOT", help=", ".join(names))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="guests at a time")
    parser.add_argument("--brief", action="store_true", help="what CI runs")
    parser.add_argument(
        "--kept", action="store_true", help="judge kept files, and write the results; boot nothing"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.boots) - set(names):
        parser.error(f"{', '.join(sorted(unknown))}: no such boot: {', '.join(names)}")
    default_boots = BRIEF if options.brief else (*BRIEF, *REST)
    chosen = [boot for boot in (*BRIEF, *REST) if boot.name in options.boots] or list(default_boots)
    problems: list[str] = []
    if not options.kept:
        try:
            parts = build()
        except (RunError, subprocess.CalledProcessError) as error:
            print(f"pmu: {error}")
            return 1
        with ThreadPoolExecutor(options.jobs) as pool:
            problems = [failure for failure in pool.map(lambda boot: start(parts, boot), chosen) if failure]
    if not problems:
        problems = [problem for boot in chosen for problem in judge(boot)]
    if not problems:
        problems = of_intervals(chosen)
    print("\n".join(problems) or "pmu: all as it should be")
    if not problems and not options.brief and not options.boots:
        keep(chosen)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

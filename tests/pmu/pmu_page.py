# SPDX-License-Identifier: GPL-2.0-only
"""Write docs/reference/pmu.md from results/pmu.json."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "pages"))

import sentences
from copies import COPIES, GOAL, Figure
from copyscope.base import paths

RESULTS = paths.ROOT / "results" / "pmu.json"
PAGE = paths.ROOT / "docs" / "reference" / "pmu.md"

HEAD = """\
<!-- Made by `make check-pmu` from results/pmu.json; the next run overwrites it. -->
# Hardware counters against known counts

This page explains how far you can trust cycles and cache misses of a copy.

    make check-pmu      # root, QEMU

This command boots a guest with a simulated PMU (`tests/pmu/simpmu.c`), which raises real NMIs.
The PMU counts the events that the [simulator](../5-simulated-caches.md) models. For the same run, the
simulator counts the true events of each call stack. These exclude the events of the instruments. So
the table checks the BPF programs, the sampler and the arithmetic. A real processor also has
speculation, prefetches and skid, which are not checked.

Each cell is the error in percent of the true count. A plus means that too many events were counted.

"""
FOOT = """
- *exact*: counts of function hooks, which include events that the hooks cause. Only LLC load
  misses are in records ([decision 004](../dev/decisions/004-function-hooks.md)).
- *sampled*: counts of the sampler at 8,000 Hz for 0.1 s; for messages of 4 KiB, at 1,000 Hz for 0.4 s.
  One standard deviation is in parentheses.
  The events of the sampling interrupts themselves are taken off.
- `n/a`: not hooked, or sampled only.
- `gather` is all user-mode work of the sender of two_copy.
- `deferred` and `pin` are sums of both processes.
- For *exact*, the true count of `pin` is that of the hooked function: about 75 % of the account.
- `pin` has only {pin_low:.1f} to {pin_high:.1f} misses per KiB delivered, so its relative errors are
  large. A copy that finds none of its data in the caches has 16.

The figures are from {made}, with Linux {kernel}. Each run sent some hundred messages or more over
loopback. The model has 32 KiB of L1D, 256 KiB of L2 and 512 KiB of LLC. In the model, an
instruction takes one cycle. A miss adds 14 cycles (L1D), 36 (L2) or 150 (LLC). All counts are in
`results/pmu.json`.

"""
# Instructions are in results/pmu.json only: no record has them by function hooks.
TITLES = {
    "l1d_misses": "L1D load misses",
    "llc_misses": "LLC load misses",
    "cycles": "cycles",
}
TIERS = ("exact", "sampled")


def figures_of(results: Mapping[str, Any]) -> list[Figure]:
    """Return the figures of results/pmu.json."""
    return [Figure(**row) for row in results["figures"]]


def held() -> set[str]:
    """Return the names of exact figures that were within the goal in results/pmu.json."""
    if not RESULTS.exists():
        return set()
    figures = figures_of(json.loads(RESULTS.read_text()))
    return {figure.name for figure in figures if figure.tier == "exact" and not figure.missed}


def cell(figure: Figure | None) -> str:
    """Return the error of a figure in percent, with one standard deviation for a sampled figure."""
    if figure is None or figure.error is None or not figure.truth:
        return "n/a"
    error = f"{100 * figure.error:+.1f}"
    if figure.deviation:
        error += f" ({100 * figure.deviation / figure.truth:.1f})"
    return error


def table(figures: list[Figure]) -> str:
    """Return the table of errors, with a row for each copy and a column for each event and tier."""
    by_cell = {
        (figure.impl, figure.size, figure.copy, figure.column, figure.tier): figure for figure in figures
    }
    runs = dict.fromkeys((figure.impl, figure.size) for figure in figures)
    titles = [f"{title}: {tier}" for title in TITLES.values() for tier in TIERS]
    lines = [f"| copy | {' | '.join(titles)} |", "|---" * (1 + len(titles)) + "|"]
    for impl, size in sorted(runs, key=lambda run: (list(COPIES).index(run[0]), int(run[1][:-1]))):
        for copy in COPIES[impl]:
            key = (impl, size, copy)
            errors = [cell(by_cell.get((*key, column, tier))) for column in TITLES for tier in TIERS]
            lines.append(f"| {impl} {size} `{copy}` | {' | '.join(errors)} |")
    return "\n".join(lines) + "\n"


def goal(figures: list[Figure]) -> str:
    """Return the section that counts the figures of the exact tier beyond the goal."""
    exact = [figure for figure in figures if figure.tier == "exact" and figure.error is not None]
    missed = sum(figure.missed for figure in exact)
    return (
        f"## The goal of {100 * GOAL:.0f} %\n\nThe goal is an error of at most {100 * GOAL:.0f} %. "
        f"{missed} of {len(exact)} exact figures, including those of instructions, miss this goal.\n"
    )


def page(results: Mapping[str, Any]) -> str:
    """Return the page."""
    figures = figures_of(results)
    pin = [figure.truth for figure in figures if figure.copy == "pin" and figure.column.endswith("_misses")]
    foot = FOOT.format(made=results["made"], kernel=results["kernel"], pin_low=min(pin), pin_high=max(pin))
    return sentences.rewrite(HEAD + table(figures) + foot + goal(figures))

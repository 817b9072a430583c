"""docs/reference/pmu.md, made of results/pmu.json."""

import json
from collections.abc import Mapping
from typing import Any

from copies import COPIES, GOAL, Figure
from copyscope import paths

RESULTS = paths.ROOT / "results" / "pmu.json"
PAGE = paths.ROOT / "docs" / "reference" / "pmu.md"

HEAD = """\
<!-- Made by `make check-pmu` from results/pmu.json; the next run overwrites it. -->
# Hardware counters beside the truth

No machine says what its counters should have said. `make check-pmu` makes one that does: a guest whose PMU
(`tests/pmu/simpmu.c`) counts what the [simulator](../5-simulated-caches.md) adds up as it models the caches,
with real NMIs. The simulator also adds up the same events by call stack, apart from those of the instruments:
this is the truth of the same run. So the tables check the BPF programs, the sampler and all arithmetic; they
say nothing of what a real processor counts (speculation, prefetches, skid).

Made on {made} with Linux {kernel}: messages of 64 KiB over loopback; 32 KiB of L1D, 256 KiB of L2, 512 KiB
of LLC; an instruction is a cycle, an L1D miss 14 more, one of L2 36 more, one of the LLC 150 more. All is per
KiB delivered.

- *exact*: function hooks alone, as they count: with what they do themselves. A record has LLC load misses of
  each copy, and says n/a for L1D load misses, cycles and instructions
  ([decision 004](../dev/decisions/004-function-hooks.md)).
- *sampled*: the sampler alone, 8,000 Hz for 0.1 s; in brackets one standard deviation in percent.
- A run has some hundred messages, and each is beside the truth of its own run. `gather` is all that the
  sender of two_copy does in user mode; `deferred` and `pin` are of both sides together. Beside *exact*
  the truth of `pin` is that of the function that is hooked: three quarters of the account's misses.

"""
TITLES = {
    "l1d_misses": "L1D load misses",
    "llc_misses": "LLC load misses",
    "cycles": "Cycles",
    "instructions": "Instructions",
}


def figures_of(found: Mapping[str, Any]) -> list[Figure]:
    """The figures that are kept."""
    return [Figure(**row) for row in found["figures"]]


def held() -> set[str]:
    """The names of those of the exact tier that were within the goal when they were kept."""
    if not RESULTS.exists():
        return set()
    kept = figures_of(json.loads(RESULTS.read_text()))
    return {figure.name for figure in kept if figure.tier == "exact" and not figure.missed}


def percent(error: float | None) -> str:
    """Nothing for nothing."""
    return "" if error is None else f"{100 * error:+.1f} %"


def cells(figure: Figure | None) -> list[str]:
    """Truth, what was found, and by how much it is off."""
    if figure is None:
        return ["", "", ""]
    if figure.found is None:
        return [f"{figure.truth:.2f}", "n/a", ""]
    error = percent(figure.error)
    if figure.deviation and figure.truth:
        error += f" ({100 * figure.deviation / figure.truth:.1f})"
    return [f"{figure.truth:.2f}", f"{figure.found:.2f}", error]


def table(figures: list[Figure], column: str) -> str:
    """A row for each copy."""
    found = {(one.impl, one.copy, one.tier): one for one in figures if one.column == column}
    lines = ["| copy | truth | exact | error | truth | sampled | error |", "|---|---|---|---|---|---|---|"]
    for impl, copies in COPIES.items():
        for copy in copies:
            row = [f"{impl} `{copy}`"]
            for tier in ("exact", "sampled"):
                row += cells(found.get((impl, copy, tier)))
            lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def misses(figures: list[Figure]) -> str:
    """What of the exact tier is further off than the goal, by name."""
    exact = [one for one in figures if one.tier == "exact" and one.error is not None]
    missed = [f"{one.name.replace('_misses', '')} {percent(one.error)}" for one in exact if one.missed]
    said = f"Of {len(exact)} exact figures {len(missed)} are off by more than {100 * GOAL:.0f} %"
    return f"## The goal of 5 %\n\n{': '.join([said, *filter(None, ['; '.join(missed)])])}.\n"


def page(found: Mapping[str, Any]) -> str:
    """The whole page."""
    figures = figures_of(found)
    parts = [HEAD.format(made=found["made"], kernel=found["kernel"])]
    parts += [f"## {title}\n\n{table(figures, column)}\n" for column, title in TITLES.items()]
    return "".join([*parts, misses(figures)])

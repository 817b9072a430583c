# SPDX-License-Identifier: GPL-2.0-only
"""Known work on one core of each type, and a verdict on each event of the PMU that counted it.

The collector does the work (src/collector/kernel/known_work.c).
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import MsgspecError, Struct, json

from copyscope.base import paths
from copyscope.base.errors import RunError
from copyscope.base.programs import run_program
from copyscope.base.spelling import parse_cpu_list
from copyscope.machine.event_checks import EventCheck
from copyscope.machine.fingerprint import MachineFacts
from copyscope.taxonomy.events import MISS_EVENTS

# Time limit in seconds. Known work takes a few seconds, and a minute in an emulated machine.
LIMIT_S = 300.0
# Maximum relative error of an event that counts what its name says. Misses also happen in page walks.
TOLERANCES = {"instructions": 0.001, "cycles": 0.05}
MISSES_TOLERANCE = 0.1
# Two events count the same if their counts in all work differ by at most this part of the lines read.
SAME = 0.01
# Names of work (known_works[] of the collector).
RANDOM, IN_ORDER, COPY = "random reads", "reads in order", "copies of 64 KiB"
OTHER_USER = "run as root, and stop other users of the PMU"
NO_PMU = "use bare metal, or a VM with a virtual PMU"


class KnownCount(Struct):
    """Count of an event in known work. `lines`: lines that the work reads; `known`: true count."""

    work: str
    lines: int
    known: int
    counted: int

    @property
    def ratio(self) -> float | None:
        """Counted events divided by true events; None if the true count is 0."""
        return self.counted / self.known if self.known else None


class MeasuredEvent(Struct):
    """Counts of an event, or the reason why it did not count."""

    name: str
    counts: list[KnownCount]
    reason: str | None = None
    counts_instead: str | None = None

    def ratio(self, work: str) -> float | None:
        """Return the ratio of counted to true events in some work; None if unknown."""
        return next((count.ratio for count in self.counts if count.work == work), None)


class MeasuredCore(Struct):
    """Output of `collector --measure` for one CPU."""

    cpu: int
    events: list[MeasuredEvent]


@dataclass(frozen=True)
class CheckedEvent:
    """Verdict on an event, and the counts behind it."""

    check: EventCheck
    counts: Sequence[KnownCount]


def measure(machine: MachineFacts) -> list[CheckedEvent]:
    """Do known work on one core of each type, and return the verdicts. Raises RunError if nothing counts."""
    sizes = (machine.caches.get(f"l{level}_bytes") for level in (4, 3, 2))
    llc_bytes = next((size for size in sizes if isinstance(size, int)), 0)
    allowed = os.sched_getaffinity(0)
    types: dict[str | None, set[int]] = {None: allowed}
    if machine.hybrid:
        types = {pmu: allowed & set(parse_cpu_list(cpus)) for pmu, cpus in machine.hybrid.items()}
    checked: list[CheckedEvent] = []
    for pmu, cpus in types.items():
        if cpus:
            core = _measure_core(min(cpus), llc_bytes)
            checked += [CheckedEvent(judge(event, core.events, pmu), event.counts) for event in core.events]
    if not any(event.counts for event in checked):
        reason = next((event.check.verdict for event in checked), "n/a: no CPU may be used")
        advice = OTHER_USER if machine.pmu else NO_PMU
        raise RunError(f"no event can be measured: {reason.removeprefix('n/a: ')}; {advice}")
    return checked


def _measure_core(cpu: int, llc_bytes: int) -> MeasuredCore:
    """Run the collector's known work on a CPU. Raises RunError."""
    try:
        result = run_program([str(paths.COLLECTOR), "--measure", f"{cpu}:{llc_bytes}"], limit_s=LIMIT_S)
        return json.decode(result.text, type=MeasuredCore)
    except OSError as error:
        raise RunError(f"{paths.COLLECTOR}: {error.strerror}; run `make`") from error
    except (MsgspecError, UnicodeEncodeError) as error:
        complaint = result.complaint or f"exit status {result.status}"
        raise RunError(f"collector --measure: {complaint}; run `make` again") from error


def judge(event: MeasuredEvent, events: Sequence[MeasuredEvent], pmu: str | None = None) -> EventCheck:
    """Return the verdict on an event.

    events: all events that were measured on the same core
    pmu: type of the core; None if all cores are alike
    """
    if event.reason is not None:
        return EventCheck(event.name, None, f"n/a: {event.reason}", pmu=pmu)
    is_miss = event.name in MISS_EVENTS
    failure = _why_misses_are_wrong(event) if is_miss else _why_work_is_wrong(event)
    if failure is not None:
        verdict = f"not usable: {failure}{_same_as(event, events)}"
    else:
        verdict = _counted_lines(event) if is_miss else f"counts {event.name}"
    shares = (event.ratio(RANDOM), event.ratio(COPY)) if is_miss else (None, None)
    return EventCheck(event.name, failure is None, verdict, *shares, pmu)


def _why_work_is_wrong(event: MeasuredEvent) -> str | None:
    """Return why an event does not count the cycles or instructions of a loop; None if it does."""
    tolerance = TOLERANCES[event.name]
    wrong = [ratio for count in event.counts if abs((ratio := count.ratio or 0.0) - 1) > tolerance]
    return f"counts {wrong[0]:.4g} of known {event.name}" if wrong else None


def _why_misses_are_wrong(event: MeasuredEvent) -> str | None:
    """Return why an event does not count misses of reads in random order; None if it does."""
    if not any(count.counted for count in event.counts):
        return "stays at 0"
    for count in event.counts:
        is_random = count.work.startswith(RANDOM)
        if is_random and count.ratio is not None and abs(count.ratio - 1) > MISSES_TOLERANCE:
            return f"counts {count.ratio:.2f} of known misses ({count.work})"
        if not count.known and count.counted > MISSES_TOLERANCE * count.lines:
            return f"counts {count.counted / count.lines:.2f} misses per line that the cache has"
    return None


def _same_as(event: MeasuredEvent, events: Sequence[MeasuredEvent]) -> str:
    """Return a clause that names another event with the same counts, or ""."""
    if not any(count.counted for count in event.counts):
        return ""
    for other in events:
        others = {count.work: count.counted for count in other.counts}
        if other is not event and all(
            count.work in others
            and abs(count.counted - others[count.work]) <= SAME * max(count.counted, count.lines)
            for count in event.counts
        ):
            return f"; its counts are those of {other.name}"
    return ""


def _counted_lines(event: MeasuredEvent) -> str:
    """Return which lines an event of misses counts."""
    in_order, copied = event.ratio(IN_ORDER) or 0.0, event.ratio(COPY) or 0.0
    # A copy reads as many lines as it writes.
    writes = copied > in_order + 0.5
    if in_order < 1 - MISSES_TOLERANCE:
        return f"counts demand {'reads and writes' if writes else 'reads'} only"
    return f"counts every line read{' or written' if writes else ''}"

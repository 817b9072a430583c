# SPDX-License-Identifier: GPL-2.0-only
"""Parse the output of `perf stat` into counters, and determine which counters are valid. No side effects.

perf runs with --no-scale, so every value that it prints is a raw count; this module scales and labels it.
Formats, from tools/perf/util/stat-display.c: since 6.0 JSON lines, whose fields have grown in number (cgroup,
thread, variance, metric-threshold, metricgroup); earlier versions print the lines of `-x ,`:
value,unit,event,run_ns,percent[,...].
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from msgspec import convert

from copyscope.record.instruments import Counter
from copyscope.run.processes import Use

Status = Literal["measured", "scaled", "unsupported"]


@dataclass(frozen=True)
class CounterEvent:
    """Event that perf counts. Software events are counted by the kernel and need no PMU."""

    name: str
    unit: str
    software: bool = False
    tracepoint: str | None = None  # tracepoint that perf counts, as perf names it
    filter: str | None = None  # condition for a hit of the tracepoint to count (perf stat --filter)
    raw: str | None = None  # raw event of this processor that replaces the named event
    counts: str | None = None  # meaning of the raw event

    @property
    def perf_name(self) -> str:
        """Name of the event on perf's command line."""
        return self.tracepoint or self.raw or self.name


# Events that perf counts: few hardware events, because the sampler needs counters of the PMU, too.
EVENTS = (
    CounterEvent("cycles", "cycles"),
    CounterEvent("instructions", "instructions"),
    CounterEvent("L1-dcache-load-misses", "misses"),
    CounterEvent("LLC-load-misses", "misses"),
    CounterEvent("task-clock", "ns", software=True),
    CounterEvent("context-switches", "switches", software=True),
    CounterEvent("cpu-migrations", "migrations", software=True),
    CounterEvent("page-faults", "faults", software=True),
)
# TLB flushes that the process made or took part in (tlb:tlb_flush, arch/x86/mm/tlb.c), without reason 0, a
# switch to another address space. Only flushes of the sender are counted, because the sender pins pages. The
# tracepoint fires at each task switch, and the receiver has far more task switches.
TLB_FLUSHES = CounterEvent(
    "tlb-flushes", "flushes", software=True, tracepoint="tlb:tlb_flush", filter="reason != 0"
)
SENDER_EVENTS = (*EVENTS, TLB_FLUSHES)
# Raw event in place of LLC-load-misses, which AMD's Zen lacks: amd_hw_cache_event_ids_f17h[] in
# arch/x86/events/amd/core.c. PMCx043 is the same on Zen 2 to 5: tools/perf/pmu-events/arch/x86/amdzen2 to
# amdzen5. The sampler uses this raw event, too.
LLC_LOAD_MISSES = "LLC-load-misses"
ZEN_RAW = "r4843"
ZEN_COUNTS = f"AMD: lines that loads and stores, without prefetches, got from memory ({ZEN_RAW})"
ZEN_2_MODEL = (0x17, 0x30)  # CPU family and lowest model of Zen 2; later families have this event, too
# Name that perf may print for an event -> our name for the event.
ALIASES = {
    "tlb:tlb_flush": "tlb-flushes",
    "cpu-cycles": "cycles",
    "cs": "context-switches",
    "migrations": "cpu-migrations",
    "faults": "page-faults",
    ZEN_RAW: LLC_LOAD_MISSES,
}
NS_PER_UNIT = {"msec": 1_000_000, "usec": 1_000, "sec": 1_000_000_000}
NO_EVENT = "not supported: no PMU of this machine (or virtual machine) counts it"
# Minimum sum, over all PMUs of a hybrid machine, of the fraction of time that each counted, if nothing was
# multiplexed.
ALL_TIME_MIN = 0.99


@dataclass(frozen=True)
class Reading:
    """Line of perf's output: the raw count of one event on one PMU. `pmu`: None if the line names no PMU."""

    event: str
    pmu: str | None
    modifiers: str
    value: float | None
    missing: str | None  # perf's text if value is None: <not supported>, <not counted>
    unit: str
    runtime_ns: int
    running: float  # counted time / enabled time; perf truncates it to whole percents


@dataclass(frozen=True)
class Part:
    """Count from one of several PMUs. `share`: fraction of the counted time that this PMU accounts for."""

    pmu: str
    value: int | None
    running: float
    share: float | None


@dataclass(frozen=True)
class CounterRow:
    """Row of the record's `counters`: a value and its status, or null and the reason for it."""

    value: int | None
    unit: str
    status: Status
    running: float | None
    reason: str | None
    parts: list[Part] | None = None
    counts: str | None = None  # meaning of a raw event that replaces the named event

    def as_record(self) -> Counter:
        return convert(self, Counter, from_attributes=True)


def adapt_to_processor(
    events: Iterable[CounterEvent], cpuinfo: Mapping[str, str]
) -> tuple[CounterEvent, ...]:
    """Replace events that this processor lacks with raw events. `cpuinfo`: fields of /proc/cpuinfo."""
    if cpuinfo.get("vendor_id") != "AuthenticAMD":
        return tuple(events)
    if (int(cpuinfo.get("cpu family", 0)), int(cpuinfo.get("model", 0))) < ZEN_2_MODEL:
        return tuple(events)
    return tuple(
        replace(event, raw=ZEN_RAW, counts=ZEN_COUNTS) if event.name == LLC_LOAD_MISSES else event
        for event in events
    )


def parse(text: str) -> list[Reading]:
    """Parse perf's output: JSON lines or `-x ,` lines. Lines without an event are skipped."""
    lines = map(str.strip, text.splitlines())
    readings = (_parse_json(line) if line.startswith("{") else _parse_csv(line) for line in lines)
    return [reading for reading in readings if reading is not None]


# Default of each column that is read, by its name in JSON, in the order of the columns of `-x ,`.
COLUMNS = {"counter-value": "", "unit": "", "event": "", "event-runtime": "0", "pcnt-running": "100"}


def _parse_json(line: str) -> Reading | None:
    """Parse a JSON line of perf's output. Return None for a line without an event."""
    row = _load_json_line(line)
    if "event" not in row or "counter-value" not in row:  # a metric or metricgroup line
        return None
    return _make_reading(*(str(row.get(name, default)) for name, default in COLUMNS.items()))


def _load_json_line(line: str) -> dict[str, object]:
    """Parse one JSON line, after repairing known faults in perf's JSON; return {} if that fails.

    Two faults are known: `100,00` in a locale with a decimal comma, and `, }` for an event without a metric
    (in a release around 6.10).
    """
    repaired = re.sub(r"(?<=: )(-?\d+),(\d+)(?=[,}])", r"\1.\2", re.sub(r",\s*}$", "}", line))
    for text in (line, repaired):
        try:
            row = json.loads(text)
        except json.JSONDecodeError:
            continue
        return row if isinstance(row, dict) else {}
    return {}


def _parse_csv(line: str) -> Reading | None:
    """Parse a line of `perf stat -x ,`. Return None for a line without an event."""
    columns = line.split(",")
    if line.startswith("#") or len(columns) < len(COLUMNS) or not columns[2]:
        return None
    return _make_reading(*columns[: len(COLUMNS)])


def _make_reading(value: str, unit: str, event: str, runtime: str, percent: str) -> Reading | None:
    """Return a reading, made from the column texts of a line of perf's output.

    Return None for unreadable numbers: the event is then treated as not printed.
    """
    pmu, name, modifiers = split_event(event)
    missing = value if value.startswith("<") else None
    try:
        return Reading(
            event=name,
            pmu=pmu,
            modifiers=modifiers,
            value=None if missing else _number(value),
            missing=missing,
            unit=unit,
            runtime_ns=int(_number(runtime)),
            running=_number(percent.rstrip("%")) / 100,
        )
    except ValueError:
        return None


def _number(text: str) -> float:
    """Parse a number with a decimal point or comma. perf prints no thousands separators here."""
    number = float(text.strip().replace(",", "."))
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def split_event(text: str) -> tuple[str | None, str, str]:
    """Split an event into PMU, name and modifiers: `cpu_core/cycles/u` is (cpu_core, cycles, u)."""
    if text in ALIASES:  # a tracepoint has a colon in its name
        return None, ALIASES[text], ""
    qualified = re.fullmatch(r"([\w.-]+)/([^/]+)/(\w*)", text)
    if qualified:
        pmu, name, modifiers = qualified.groups()
        return pmu, ALIASES.get(name, name), modifiers
    name, _, modifiers = text.partition(":")
    return None, ALIASES.get(name, name), modifiers


def combine(readings: Sequence[Reading], events: Iterable[CounterEvent] = EVENTS) -> dict[str, CounterRow]:
    """Map event names to counters, from all readings. An event without a reading is unsupported.

    A machine with several core types has a PMU for each type, so a reading is only part of the count.
    perf 6.1 prints no line for a PMU that cannot count the event.
    """
    software = {event.name for event in EVENTS if event.software}
    enabled_ns = max((reading.runtime_ns for reading in readings if reading.event in software), default=0)
    pmus = sorted({reading.pmu for reading in readings if reading.pmu})
    counts_any = any(reading.value is not None for reading in readings if reading.event not in software)
    counters: dict[str, CounterRow] = {}
    for event in events:
        rows = [reading for reading in readings if reading.event == event.name]
        missing_pmus = [pmu for pmu in pmus if pmu not in {row.pmu for row in rows}]
        if not rows:
            counter = unsupported(event, "perf printed no readable line for this event")
        elif len(rows) == 1 and (rows[0].pmu is None or not missing_pmus):
            counter = _count_one(event, rows[0], enabled_ns)
        else:
            counter = _count_parts(event, rows, enabled_ns, missing_pmus)
        if counter.reason == NO_EVENT and counts_any:
            counter = replace(counter, reason="not supported: the PMU of this machine has no such event")
        counters[event.name] = replace(counter, counts=event.counts)
    return counters


def unsupported(event: CounterEvent, reason: str, parts: list[Part] | None = None) -> CounterRow:
    """Return a counter that has a reason instead of a value."""
    return CounterRow(None, event.unit, "unsupported", None, reason, parts)


def all_unsupported(reason: str, events: Iterable[CounterEvent]) -> dict[str, CounterRow]:
    """Return counters without values, for a process on which perf could not run."""
    return {event.name: unsupported(event, reason) for event in events}


def _count_one(event: CounterEvent, reading: Reading, enabled_ns: int) -> CounterRow:
    """Return the counter of an event with a single reading. `enabled_ns`: time for which perf counted."""
    reason = _why_unknown(event, reading)
    if reading.value is None or reason is not None:
        return unsupported(event, reason or "unknown")
    always_counted = event.software or reading.running >= 1
    running = 1.0 if always_counted else _running(reading, enabled_ns)
    value = _in_unit(event, reading.unit, reading.value / running)
    return CounterRow(value, event.unit, "measured" if always_counted else "scaled", running, None)


def _count_parts(
    event: CounterEvent, rows: Sequence[Reading], enabled_ns: int, missing_pmus: Sequence[str]
) -> CounterRow:
    """Return the counter of an event on a hybrid machine, where each PMU counts on its own cores.

    `rows`: readings of the event. `enabled_ns`: time for which perf counted. `missing_pmus`: PMUs without a
    reading.
    """
    reasons = {row: _why_unknown(event, row) for row in rows}
    counted = [row for row in rows if reasons[row] is None and row.value is not None]
    running = {row: _running(row, enabled_ns) if row in counted else 0.0 for row in rows}
    total = sum(running.values())
    parts = [
        Part(
            pmu=row.pmu or "unnamed",
            value=_in_unit(event, row.unit, row.value) if row in counted and row.value is not None else None,
            running=running[row],
            share=running[row] / total if total else None,
        )
        for row in rows
    ]
    parts += [Part(pmu, None, 0.0, 0.0 if total else None) for pmu in missing_pmus]
    if not counted:
        return unsupported(event, "; ".join(f"{row.pmu}: {reasons[row]}" for row in rows), parts)
    unsupported_pmus = [row.pmu or "unnamed" for row in rows if row.missing == "<not supported>"] + [
        *missing_pmus
    ]
    if unsupported_pmus and total < ALL_TIME_MIN:
        names = ", ".join(unsupported_pmus)
        reason = f"{names} cannot count this event; the other PMUs cover {total:.0%} of the time"
        return unsupported(event, reason, parts)
    raw = sum(row.value for row in counted if row.value is not None)
    status: Status = "measured" if total >= ALL_TIME_MIN else "scaled"
    value = _in_unit(event, rows[0].unit, raw if status == "measured" else raw / total)
    return CounterRow(value, event.unit, status, min(total, 1.0), None, parts)


def _why_unknown(event: CounterEvent, reading: Reading) -> str | None:
    """Return the reason why a reading has no valid value, or None if it is valid."""
    if reading.missing == "<not supported>":
        return NO_EVENT
    if reading.missing == "<not counted>":
        return "not counted: the process never ran during the count, or no hardware counter was free"
    if reading.missing is not None:
        return reading.missing
    if "u" in reading.modifiers and "k" not in reading.modifiers:
        return "counted in user mode only, but the kernel makes the copies: run as root"
    if not event.software and reading.runtime_ns == 0:
        return "never counted: the event was on a hardware counter for 0 ns"
    return None


def _running(reading: Reading, enabled_ns: int) -> float:
    """Return the counted time divided by the enabled time. perf prints it truncated to whole percents.

    `enabled_ns`: enabled time taken from a software event, where it is the same but not rounded. It corrects
    the fraction by up to 1 %.
    """
    if reading.running >= 1 or enabled_ns == 0:
        return min(reading.running, 1.0)
    refined = reading.runtime_ns / enabled_ns
    return min(max(refined, reading.running), reading.running + 0.01)


def _in_unit(event: CounterEvent, perf_unit: str, value: float) -> int:
    """Convert a value from perf to the unit of the event."""
    return round(value * NS_PER_UNIT.get(perf_unit, 1)) if event.unit == "ns" else round(value)


# perf counts a watched process at least this long, in seconds ...
PERF_RUN_S = 0.5
# ... and until the process has used this much CPU time: counts of a sleeping process are too few.
CPU_TIME_MIN_NS = 10_000_000
# Events that happen when a thread leaves the CPU or returns; all other events happen while it runs.
SWITCH_EVENTS = ("context-switches", "cpu-migrations")


def scale_to_ledger(counters: Mapping[str, CounterRow], counted: Use, ledger: Use) -> dict[str, CounterRow]:
    """Scale perf's counts up to all ledger segments. `running` of each row is scaled by the same fraction.

    `counted`: the program's CPU use while perf counted. `ledger`: its CPU use in all ledger segments.
    """
    time_fraction = _fraction(counted.cpu_ns, ledger.cpu_ns)
    switch_fraction = _fraction(counted.switches, ledger.switches)
    return {
        name: _scaled(counter, switch_fraction if name in SWITCH_EVENTS else time_fraction)
        for name, counter in counters.items()
    }


def _fraction(counted: int, total: int) -> float:
    """Return counted / total, or 1 unless 0 < counted < total."""
    return counted / total if 0 < counted < total else 1.0


def _scaled(row: CounterRow, fraction: float) -> CounterRow:
    """Return a counter scaled up to the whole time, of which perf counted only a fraction."""
    if row.value is None or row.running is None or fraction == 1:
        return row
    parts = row.parts and [
        replace(
            part,
            value=None if part.value is None else round(part.value / fraction),
            running=part.running * fraction,
        )
        for part in row.parts
    ]
    return replace(
        row, value=round(row.value / fraction), status="scaled", running=row.running * fraction, parts=parts
    )

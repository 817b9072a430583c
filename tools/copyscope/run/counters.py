"""Performance counters out of what `perf stat` prints: pure parsing, and what may be called a number.

perf is run with --no-scale, so every value here is the raw count and scaling is done (and labelled) below.
Formats, from tools/perf/util/stat-display.c: JSON lines since 6.0, with fields added since (cgroup, thread,
variance, metric-threshold, metricgroup); before that lines of `-x ,`: value,unit,event,run_ns,percent[,...].
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from copyscope.record.session_result import Record
from copyscope.run.processes import Use

Status = Literal["measured", "scaled", "unsupported"]


@dataclass(frozen=True)
class Event:
    """One event that perf is asked for; software events are kept by the kernel and need no PMU."""

    name: str
    unit: str
    software: bool = False
    tracepoint: str | None = None  # perf's name of the tracepoint that is counted
    only: str | None = None  # and which of its events (perf stat --filter)
    raw: str | None = None  # the processor's own event that stands for it
    counts: str | None = None  # and what that counts

    @property
    def asked(self) -> str:
        """What perf is asked for."""
        return self.tracepoint or self.raw or self.name


# Those of hardware that feed a column, and no more: the sampler needs counters of the PMU, too.
EVENTS = (
    Event("cycles", "cycles"),
    Event("instructions", "instructions"),
    Event("L1-dcache-load-misses", "misses"),
    Event("LLC-load-misses", "misses"),
    Event("task-clock", "ns", software=True),
    Event("context-switches", "switches", software=True),
    Event("cpu-migrations", "migrations", software=True),
    Event("page-faults", "faults", software=True),
)
# Flushes of TLB entries that the process made or took part in (tlb:tlb_flush, arch/x86/mm/tlb.c). Reason 0 is
# the switch to another address space. Counted for the sender only: it is the side that pins pages, and the
# tracepoint fires at each switch of a task, of which the receiver has far more.
TLB_FLUSHES = Event("tlb-flushes", "flushes", software=True, tracepoint="tlb:tlb_flush", only="reason != 0")
SENDER_EVENTS = (*EVENTS, TLB_FLUSHES)
# AMD's Zen has no event of that name: amd_hw_cache_event_ids_f17h[] in arch/x86/events/amd/core.c. PMCx043 is
# the same on Zen 2 to 5: tools/perf/pmu-events/arch/x86/amdzen2 to amdzen5. The sampler takes it, too.
LLC_LOAD_MISSES = "LLC-load-misses"
ZEN_RAW = "r4843"
ZEN_COUNTS = f"AMD: lines that loads and stores, without prefetches, got from memory ({ZEN_RAW})"
ZEN_2 = (0x17, 0x30)  # family and least model; later families have it, too
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
# Two PMUs of a hybrid machine take turns; together they cover the whole time unless they are multiplexed.
WHOLE = 0.99


@dataclass(frozen=True)
class Reading:
    """One line of perf: the raw count of one event on one PMU (pmu None: perf named none)."""

    event: str
    pmu: str | None
    modifiers: str
    value: float | None
    missing: str | None  # perf's own words when value is None: <not supported>, <not counted>
    unit: str
    runtime_ns: int
    running: float  # counted time / enabled time; perf truncates it to whole percents


@dataclass(frozen=True)
class Part:
    """What one PMU of several counted. share: its part of the counted time (of where the process ran)."""

    pmu: str
    value: int | None
    running: float
    share: float | None


@dataclass(frozen=True)
class Counter:
    """One row of the record's `counters`: a number with its status, or null with its reason."""

    value: int | None
    unit: str
    status: Status
    running: float | None
    reason: str | None
    parts: list[Part] | None = None
    counts: str | None = None  # where the PMU has no event of this name

    def as_record(self) -> Record:
        row = asdict(self)
        return row if self.counts else {key: value for key, value in row.items() if key != "counts"}


def of_processor(events: Iterable[Event], cpuinfo: Mapping[str, str]) -> tuple[Event, ...]:
    """The events, with the processor's own where it has none of that name; `cpuinfo` of /proc/cpuinfo."""
    if cpuinfo.get("vendor_id") != "AuthenticAMD":
        return tuple(events)
    if (int(cpuinfo.get("cpu family", 0)), int(cpuinfo.get("model", 0))) < ZEN_2:
        return tuple(events)
    return tuple(
        replace(event, raw=ZEN_RAW, counts=ZEN_COUNTS) if event.name == LLC_LOAD_MISSES else event
        for event in events
    )


def parse(text: str) -> list[Reading]:
    """The readings in perf's output, JSON lines or `-x ,` lines; lines without an event carry none."""
    lines = map(str.strip, text.splitlines())
    found = (_parse_json(line) if line.startswith("{") else _parse_csv(line) for line in lines)
    return [reading for reading in found if reading is not None]


# The columns that are read, in their order; those of JSON, and what they are where one is missing.
COLUMNS = {"counter-value": "", "unit": "", "event": "", "event-runtime": "0", "pcnt-running": "100"}


def _parse_json(line: str) -> Reading | None:
    row = _load(line)
    if "event" not in row or "counter-value" not in row:  # a metric or metricgroup line
        return None
    return _make_reading(*(str(row.get(name, otherwise)) for name, otherwise in COLUMNS.items()))


def _load(line: str) -> Record:
    """One JSON line, repaired where perf prints what is not JSON; a line beyond repair carries nothing.

    Two known faults: `100,00` in a locale with a decimal comma, and `, }` for an event with no metric (in one
    release around 6.10).
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
    columns = line.split(",")
    if line.startswith("#") or len(columns) < len(COLUMNS) or not columns[2]:
        return None
    return _make_reading(*columns[: len(COLUMNS)])


def _make_reading(value: str, unit: str, event: str, runtime: str, percent: str) -> Reading | None:
    """None for a line whose numbers are none: the event then counts as not printed."""
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
    """A number with a decimal point or, in some locales, a decimal comma; perf groups no thousands here."""
    number = float(text.strip().replace(",", "."))
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def split_event(text: str) -> tuple[str | None, str, str]:
    """PMU, event, modifiers: `cpu_core/cycles/u` is (cpu_core, cycles, u); a name alone has no PMU."""
    if text in ALIASES:  # a tracepoint has a colon in its name
        return None, ALIASES[text], ""
    qualified = re.fullmatch(r"([\w.-]+)/([^/]+)/(\w*)", text)
    if qualified:
        pmu, name, modifiers = qualified.groups()
        return pmu, ALIASES.get(name, name), modifiers
    name, _, modifiers = text.partition(":")
    return None, ALIASES.get(name, name), modifiers


def combine(readings: Sequence[Reading], events: Iterable[Event] = EVENTS) -> dict[str, Counter]:
    """One counter per event, out of all its readings; an event that perf did not print is unsupported.

    Of several core types each has its PMU, which perf names: a reading of one of them is a part. perf 6.1
    leaves out the line of one that cannot count the event.
    """
    software = {event.name for event in EVENTS if event.software}
    enabled_ns = max((reading.runtime_ns for reading in readings if reading.event in software), default=0)
    pmus = sorted({reading.pmu for reading in readings if reading.pmu})
    counts_any = any(one.value is not None for one in readings if one.event not in software)
    counters: dict[str, Counter] = {}
    for event in events:
        rows = [reading for reading in readings if reading.event == event.name]
        left_out = [pmu for pmu in pmus if pmu not in {row.pmu for row in rows}]
        if not rows:
            counter = unsupported(event, "perf printed no readable line for it")
        elif len(rows) == 1 and (rows[0].pmu is None or not left_out):
            counter = _count_one(event, rows[0], enabled_ns)
        else:
            counter = _count_parts(event, rows, enabled_ns, left_out)
        if counter.reason == NO_EVENT and counts_any:
            counter = replace(counter, reason="not supported: the PMU of this machine has no such event")
        counters[event.name] = replace(counter, counts=event.counts)
    return counters


def unsupported(event: Event, reason: str, parts: list[Part] | None = None) -> Counter:
    return Counter(None, event.unit, "unsupported", None, reason, parts)


def all_unsupported(reason: str, events: Iterable[Event]) -> dict[str, Counter]:
    """What a side gets when perf itself could not run."""
    return {event.name: unsupported(event, reason) for event in events}


def _count_one(event: Event, reading: Reading, enabled_ns: int) -> Counter:
    reason = _why_unknown(event, reading)
    if reading.value is None or reason is not None:
        return unsupported(event, reason or "unknown")
    whole = event.software or reading.running >= 1
    running = 1.0 if whole else _running(reading, enabled_ns)
    value = _in_unit(event, reading.unit, reading.value / running)
    return Counter(value, event.unit, "measured" if whole else "scaled", running, None)


def _count_parts(event: Event, rows: Sequence[Reading], enabled_ns: int, left_out: Sequence[str]) -> Counter:
    """Hybrid machines: each PMU counts only while the process is on its cores, so raw counts add up."""
    reasons = {row: _why_unknown(event, row) for row in rows}
    known = [row for row in rows if reasons[row] is None and row.value is not None]
    running = {row: _running(row, enabled_ns) if row in known else 0.0 for row in rows}
    total = sum(running.values())
    parts = [
        Part(
            pmu=row.pmu or "unnamed",
            value=_in_unit(event, row.unit, row.value) if row in known and row.value is not None else None,
            running=running[row],
            share=running[row] / total if total else None,
        )
        for row in rows
    ]
    parts += [Part(pmu, None, 0.0, 0.0 if total else None) for pmu in left_out]
    if not known:
        return unsupported(event, "; ".join(f"{row.pmu}: {reasons[row]}" for row in rows), parts)
    blind = [row.pmu or "unnamed" for row in rows if row.missing == "<not supported>"] + [*left_out]
    if blind and total < WHOLE:
        reason = (
            f"{', '.join(blind)} cannot count it, and only {total:.0%} of the time is covered by the others"
        )
        return unsupported(event, reason, parts)
    raw = sum(row.value for row in known if row.value is not None)
    status: Status = "measured" if total >= WHOLE else "scaled"
    value = _in_unit(event, rows[0].unit, raw if status == "measured" else raw / total)
    return Counter(value, event.unit, status, min(total, 1.0), None, parts)


def _why_unknown(event: Event, reading: Reading) -> str | None:
    if reading.missing == "<not supported>":
        return NO_EVENT
    if reading.missing == "<not counted>":
        return "not counted: the process never ran while counting was on, or no hardware counter was free"
    if reading.missing is not None:
        return reading.missing
    if "u" in reading.modifiers and "k" not in reading.modifiers:
        return "counted in user mode only, and the copies are made in the kernel: run as root"
    if not event.software and reading.runtime_ns == 0:
        return "never counted: it was on a hardware counter for 0 ns"
    return None


def _running(reading: Reading, enabled_ns: int) -> float:
    """Counted / enabled time. perf prints it truncated to whole percents, which at 16 % is an error of 6 %.

    The enabled time of a software event is the same time, not rounded, and refines the fraction within 1 %.
    """
    if reading.running >= 1 or enabled_ns == 0:
        return min(reading.running, 1.0)
    refined = reading.runtime_ns / enabled_ns
    return min(max(refined, reading.running), reading.running + 0.01)


def _in_unit(event: Event, perf_unit: str, value: float) -> int:
    return round(value * NS_PER_UNIT.get(perf_unit, 1)) if event.unit == "ns" else round(value)


COUNTED_S = 0.5
# Of a program that slept all that time too little is known.
CPU_LEAST_NS = 10_000_000
# What happens when it leaves the CPU or comes back; all else happens while it runs.
OF_SWITCHES = ("context-switches", "cpu-migrations")


class CountedPart:
    """`counters`: what perf counted; None until it has ended."""

    def __init__(self) -> None:
        self.counters: dict[str, Counter] | None = None
        self._counted = self._whole = Use()

    def keep(self, counters: dict[str, Counter], used: Use) -> None:
        """perf has ended; `used`: by then, in the ledger segment that lasts."""
        self.counters, self._counted = counters, self._whole + used

    def add(self, used: Use) -> None:
        """One whole ledger segment."""
        self._whole += used

    def whole(self) -> dict[str, Counter]:
        """The counts of all ledger segments. What was not counted stays so; `running` is the counted part."""
        assert self.counters is not None
        time = _part(self._counted.cpu_ns, self._whole.cpu_ns)
        switches = _part(self._counted.switches, self._whole.switches)
        return {
            name: _scaled(one, switches if name in OF_SWITCHES else time)
            for name, one in self.counters.items()
        }


def _part(counted: int, whole: int) -> float:
    return counted / whole if 0 < counted < whole else 1.0


def _scaled(one: Counter, part: float) -> Counter:
    if one.value is None or one.running is None or part == 1:
        return one
    parts = one.parts and [
        replace(p, value=None if p.value is None else round(p.value / part), running=p.running * part)
        for p in one.parts
    ]
    return replace(
        one, value=round(one.value / part), status="scaled", running=one.running * part, parts=parts
    )

"""The exact tier: what the hooks of copies counted, one row per copy, side and context."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from copyscope import units
from copyscope.grouping import gathered
from copyscope.ledger.functions import OWN_WORK
from copyscope.ledger.verdict import stopped_looks
from copyscope.record.check import Whole
from copyscope.record.derived import CopyRun, ExactRow
from copyscope.record.instruments import Functions
from copyscope.show.account_words import COPIES
from copyscope.show.layout import Table, heading, labelled, wrap
from copyscope.show.ledger_table import interval_per_kib, plain_reason, rate

# Columns that come from counters, by key of the row.
COUNTED = {
    "llc_misses": "LLC miss/KiB",
    "cpu_clock_ns": "cpu-clock ns/KiB",
    "page_faults": "faults/KiB",
    "dtlb_load_misses": "dTLB load miss/KiB",
    "dtlb_store_misses": "dTLB store miss/KiB",
    "itlb_load_misses": "iTLB miss/KiB",
}
# Of these the laboratory has the truth (docs/reference/pmu.md).
PROVEN = ("llc_misses",)


def exact_lines(run: Whole, width: int) -> list[Text]:
    """Nothing when no function was hooked in this run."""
    rows, functions = run.derived.exact, run.raw.functions
    if not rows or functions is None:
        return []
    note = "functions segments; own time; share = of that side's CPU time"
    lines = heading("EXACT", note, width)
    gated = functions.gate > 1
    titles = ("calls", "bytes", "own time", "ns/KiB", "95 % interval", "share")
    raw = sorted({name for row in rows for name in (row.raw or {})})
    counted = [*COUNTED.values(), *(f"{name}/KiB" for name in raw)]
    table = Table(("in", "side", "where"), *titles, *counted)
    for row in sorted(rows, key=lambda row: (row.side != "sender", row.side, -row.self_ns)):
        per_kib = _per_kib(row)
        table.add(
            *(COPIES.get(row.category, row.category), row.side, row.context),
            units.format_count(row.calls),
            units.format_bytes(row.bytes) if row.bytes else "-",
            None if row.cpu_ns is None else units.format_ns(row.cpu_ns),
            None if row.ns_per_kib is None else f"{row.ns_per_kib:,.1f}",
            interval_per_kib(row.ci, per_kib) if gated else None,
            units.format_percent(row.share),
            *(rate(getattr(row, key), per_kib) for key in COUNTED),
            *(rate((row.raw or {}).get(name), per_kib) for name in raw),
        )
    lines += table.lines(width)
    for note in _notes(run, functions):
        lines += wrap(note, width, indent=2, style="dim")
    return lines + life_lines(run, width)


def _per_kib(row: ExactRow) -> float | None:
    """What turns a total of this row into its value per KiB of payload; None for a row without time."""
    return row.ns_per_kib / row.cpu_ns if row.cpu_ns and row.ns_per_kib else None


def _notes(run: Whole, functions: Functions) -> Iterator[str]:
    """What is in no row; how many were timed; what the counters cost, and which of them are n/a."""
    if functions.gate != 1:
        timed = sum(row.timed_calls for row in run.derived.exact)
        whole = sum(row.calls for row in run.derived.exact)
        yield (
            f"exact 1/{functions.gate}: {units.format_count(timed)} of {units.format_count(whole)} copies"
            " were timed, chosen at random; calls and bytes are of all"
        )
    stopped = stopped_looks(run.raw)
    if stopped is not None and stopped[0]:
        count, of = map(units.format_count, stopped)
        yield f"left out: {count} of {of} timed copies: interrupted while the clock was read"
    yield from _own_work(run.derived.exact, functions)
    for event in functions.events:
        if event.status == "scaled":
            ran = f"ran {(event.running or 0.0) * 100:.0f} % of the time"
            yield f"{event.name}: scaled, {ran}: {event.reason}"
        elif event.status == "partial":
            yield f"{event.name}: {event.reason}"
        if event.counts:
            yield f"{event.name}: {event.counts}"
    lacking = [event for event in functions.events if event.status == "unsupported"]
    unsupported = gathered(
        (plain_reason(event.reason or "no reason recorded"), event.name) for event in lacking
    )
    for reason, names in unsupported.items():
        yield f"n/a: {', '.join(names)} per function: {reason}"


def _own_work(exact: Sequence[ExactRow], functions: Functions) -> Iterator[str]:
    """What a look costs, and which counters have its work in them."""
    cost = functions.read_cost
    if cost is not None:
        yield (
            f"reading the clock at the start and end of a copy takes {cost.look_ns:.0f} ns "
            f"({cost.low_ns:.0f} to"
            f" {cost.high_ns:.0f}, {cost.reads:,} looks)"
        )
    known = [key for key in COUNTED if any(getattr(row, key) is not None for row in exact)]
    known += sorted({name for row in exact for name, count in (row.raw or {}).items() if count is not None})
    if unproven := [key for key in known if key not in PROVEN]:
        yield f"the hooks' own work is in {', '.join(unproven)}: how much of it is not known"
    yield f"n/a: {', '.join(OWN_WORK)} of a copy: the hooks' own work is in it (docs/reference/pmu.md)"


def life_lines(run: Whole, width: int) -> list[Text]:
    """Whose memory the late copies copied, who ran them, when the notice came; nothing without hooks."""
    life = run.derived.zerocopy_life
    if life is None:
        return []
    lines: list[Text] = []
    for owned in life.owners:
        owner = "memory of unknown owner" if owned.owner_side is None else f"{_of(owned.owner_side)} memory"
        runs = ", ".join(f"{units.format_count(one.calls)} {_runner(one)}" for one in owned.runs)
        text = f"{units.format_count(owned.calls)} copies of {owner}, {units.format_bytes(owned.bytes)}"
        lines += labelled("late copies", f"{text}; run by: {runs}", width)
    for notified in life.notified:
        text = f"{_of(notified.side)} sends: notified p50 {_when(notified.p50_ns)}, "
        text += f"p99 {_when(notified.p99_ns)}"
        count = units.format_count(notified.count)
        before = units.format_count(notified.before_return)
        text += f" ({count} notifications, {before} of them before the send returned)"
        lines += labelled("completion", text, width)
    return lines


def _of(side: str) -> str:
    return "other processes'" if side == "other" else f"the {side}'s"


def _runner(run: CopyRun) -> str:
    if run.context == "softirq":
        return "softirq of others" if run.side == "other" else f"softirq on the {run.side}"
    task = "others" if run.side == "other" else f"the {run.side}"
    return task if run.context == "process" else f"{task} (context unknown)"


def _when(ns: int | None) -> str:
    """0 is the send's return: the notification was there by then."""
    if ns is None:
        return units.NOT_AVAILABLE
    return "by its return" if ns == 0 else f"at most {units.format_ns(ns)} after its return"

"""The copy ledger as a table: one row per account, side and context."""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence

from msgspec.structs import replace
from rich.text import Text

from copyscope import units
from copyscope.grouping import gathered
from copyscope.ledger.attribution import SIDES, tied
from copyscope.ledger.rows import CONTEXTS, COUNTED_ON
from copyscope.ledger.share import FEWEST_SAMPLES
from copyscope.record.check import Whole
from copyscope.record.derived import AccountRow, StageRow
from copyscope.record.instruments import Sample
from copyscope.record.sections import Interval
from copyscope.record.segments import relays
from copyscope.show.account_words import COPIES, called
from copyscope.show.layout import Table, heading, wrap
from copyscope.taxonomy.events import EVENT_COLUMNS, event_name, time_names
from copyscope.taxonomy.misses import MISSES, in_full
from copyscope.taxonomy.taxonomy import ACCOUNTS

Row = AccountRow | StageRow

DITTO = '"'
EVENT_NAMES = frozenset(name for names in EVENT_COLUMNS.values() for name in names)

# keys of a row that may be unknown -> the column that shows them
COLUMN_OF_KEY = {
    "ns_per_kib": "ns/KiB",
    "ci": "95 % interval",
    "share": "share",
    "bytes": "bytes",
    "calls": "calls",
    "cycles": "cycles/B",
    "instructions": "instr/B",
    "l1d_misses": "L1D miss/KiB",
    "llc_misses": "LLC miss/KiB",
}
VERBOSE_COLUMN_OF_KEY = {"cpu_ns": "CPU time", "samples": "samples", "bytes_method": "bytes by"}


def account_lines(run: Whole, width: int, *, verbose: bool) -> list[Text]:
    """One row per account, side and context, in the order in which a byte meets them."""
    rows = sorted(
        occurring(run.derived.ledger), key=lambda row: flow_order(row.account, row.side, row.context)
    )
    kib = "sent or received by it" if run.raw.target else "delivered"
    lines = heading("COPY LEDGER", f"ledger segments; share = of all CPU time; KiB = 1024 B {kib}", width)
    if not rows:
        lines += wrap("no copy was seen: nothing was sent, or nothing could be attributed", width)
    elif all(row.cpu_ns is None and row.bytes is None for row in rows):
        reasons = dict.fromkeys(plain_reason(row.reasons[key]) for row in rows for key in ("cpu_ns", "bytes"))
        return lines + wrap(f"n/a: {'; '.join(reasons)}", width, indent=2, style="dim")
    titles = ["ns/KiB", "95 % interval", "share", "bytes", "calls", "method", "cycles/B", "instr/B"]
    behind = ["95 % interval", *(["samples"] if verbose else [])]
    titles += ["L1D miss/KiB", *behind, "LLC miss/KiB", *behind, "CPU time"]
    titles += ["samples", "bytes by"] if verbose else []
    table = Table(("copy", "side", "where"), *titles, words=("method", "bytes by"))
    per_kib = kib_factor(run)
    counted = {COUNTED_ON + " ".join((row.account, row.side, row.context)) for row in rows}
    if few := too_few(run):
        rows = [_without_shares(row, f"{few}: too few for shares") for row in rows]
    for row in rows:
        table.add(*_account_cells(row, per_kib, counted, verbose=verbose))
    lines += table.lines(width)
    lines += _unknown_lines(rows, counted, width, verbose=verbose, events=not says_no_pmu(run))
    for column in MISSES:
        if any(getattr(row, column) is not None for row in rows):
            lines += wrap(in_full(run.raw.machine, column), width, indent=2, style="dim")
    seen = {"tun", "user_encrypt", *(row.account for row in rows)}
    absent = [COPIES[name] for name in ACCOUNTS if name not in seen]
    if absent:
        lines += wrap(f"not seen in this run: {', '.join(absent)}", width, indent=2, style="dim")
    return lines


def says_no_pmu(run: Whole) -> bool:
    """Whether the counters say that this machine has no PMU: then nothing else need say it again."""
    events = (event for side in run.raw.counters.values() for event in side.items())
    return run.raw.machine.pmu == [] and any(
        value.value is None and event_name(name) in EVENT_NAMES for name, value in events
    )


def occurring(rows: Iterable[AccountRow]) -> list[AccountRow]:
    """Rows of accounts that happened, or of which nothing is known; a counted or sampled zero is left out."""
    measures = ("bytes", "calls", "cpu_ns", "samples")
    return [
        row
        for row in rows
        if any(getattr(row, key) for key in measures) or (row.cpu_ns is None and row.bytes is None)
    ]


def of_relay(run: Whole, rows: Iterable[AccountRow]) -> list[AccountRow]:
    """What is copied to a relay; none where the sender is none, or splices."""
    if not relays(run.raw.run):
        return []
    return [row for row in rows if (row.account, row.side) == ("copy_out", "sender")]


def every_row(run: Whole) -> list[Row]:
    """Copies, then all other work."""
    return [*run.derived.ledger, *run.derived.stages]


def kib_factor(run: Whole) -> float | None:
    """KiB of payload per nanosecond-per-KiB: turns a row's total into its value per KiB.

    Taken from a row that carries both, so that totals and rates can never use different payloads.
    """
    for row in every_row(run):
        if row.cpu_ns and row.ns_per_kib:
            return row.ns_per_kib / row.cpu_ns
    return None


def why_no_time(run: Whole, otherwise: str) -> str:
    """Why no CPU time is known, as far as the stages say it."""
    reasons = (row.reasons.get("share") for row in run.derived.stages)
    return next(filter(None, reasons), otherwise)


def too_few(run: Whole) -> str:
    """`12 samples`, where they are too few for any share of CPU time; empty where there are more, or none."""
    sides = run.derived.sides
    counted = [*sides.processes().values()] if run.raw.target else [*sides.processes().values(), sides.other]
    samples = sum(side.samples or 0 for side in counted)
    return units.counted(samples, "sample") if 0 < samples < FEWEST_SAMPLES else ""


def _without_shares(row: AccountRow, why: str) -> AccountRow:
    """Its interval, and no number in the middle of it: that is no finding."""
    reasons = dict.fromkeys(("ns_per_kib", "share"), why) | row.reasons
    return replace(row, ns_per_kib=None, share=None, reasons=reasons)


def time_samples(run: Whole) -> list[Sample]:
    """The samples of the event that divides time in this record, so that none is counted twice."""
    rows = run.raw.samples
    statuses = {event.name: event.status for event in run.raw.sampler.events}
    names = time_names({row.event for row in rows}, statuses) or ()
    return [row for row in tied(rows) if event_name(row.event) in names]


def deciding_symbols(
    run: Whole, category: str, side: str | None = None, context: str | None = None
) -> Counter[str]:
    """Function -> samples of an account or stage; of one side and context only where they are given."""
    symbols: Counter[str] = Counter()
    for row in time_samples(run):
        here = side in (None, row.side) and context in (None, row.context)
        if row.category == category and here:
            symbols[row.symbol] += row.samples
    return symbols


def flow_order(account: str, side: str, context: str = "") -> tuple[int, int, int]:
    """The order in which a byte meets the rows of a ledger."""
    # A relay copies out of one socket what it sends into the other.
    first = -1 if (account, side) == ("copy_out", "sender") else position(ACCOUNTS, account)
    return first, position(SIDES, side), position(CONTEXTS, context)


def position(names: tuple[str, ...], name: str) -> int:
    return names.index(name) if name in names else len(names)


def _account_cells(
    row: AccountRow, per_kib: float | None, counted: Container[str], *, verbose: bool
) -> list[str | None]:
    # the total is said where asked for, and where there is no payload to divide it by
    total_ns = row.cpu_ns if verbose or per_kib is None else None
    about = "~" if row.calls_method == "scaled" else ""
    moved = None if row.bytes is None else units.format_bytes(row.bytes, exact=verbose)
    if moved is not None and row.bytes_method == "scaled":
        moved = f"~{moved}"
    calls = None if row.calls is None else about + units.format_count(row.calls)
    # What was counted for the account on another row that is shown is a ditto mark.
    cells = [
        *(called(row.account, watched=row.side == "target", side=row.side), row.side, row.context),
        units.format_tenths(row.ns_per_kib),
        interval_per_kib(row.ci, per_kib),
        units.format_percent(row.share),
        DITTO if moved is None and row.reasons.get("bytes") in counted else moved,
        DITTO if calls is None and row.reasons.get("calls") in counted else calls,
        row.method,
        rate(row.cycles, per_kib, kib=1 / 1024),
        rate(row.instructions, per_kib, kib=1 / 1024),
        *_miss_cells(row, "l1d_misses", per_kib, verbose=verbose),
        *_miss_cells(row, "llc_misses", per_kib, verbose=verbose),
        None if total_ns is None else units.format_ns(total_ns),
    ]
    if verbose:
        how = ", ".join(filter(None, (row.bytes_method, row.bytes_by))) or None
        cells += [
            None if row.samples is None else units.format_count(row.samples),
            DITTO if how is None and row.reasons.get("bytes_method") in counted else how,
        ]
    return cells


def _miss_cells(row: AccountRow, column: str, per_kib: float | None, *, verbose: bool) -> list[str | None]:
    """Misses per KiB, their interval, and with -vv the samples that both rest on."""
    known = row.events.get(column)
    between = samples = None
    if known is not None and per_kib is not None:
        between = units.format_interval(known.low * per_kib, known.high * per_kib, digits=2)
        samples = units.format_count(known.samples)
    return [rate(getattr(row, column), per_kib), between, *([samples] if verbose else [])]


def interval_per_kib(interval: Interval | None, per_kib: float | None) -> str | None:
    if interval is None or per_kib is None:
        return None
    return units.format_interval(interval.low_ns * per_kib, interval.high_ns * per_kib)


def rate(total: float | None, per_kib: float | None, kib: float = 1.0) -> str | None:
    """What a count of a row is for so many KiB of payload."""
    return None if total is None or per_kib is None else units.format_hundredths(total * per_kib * kib)


def _unknown_lines(
    rows: Sequence[AccountRow], counted: Container[str], width: int, *, verbose: bool, events: bool
) -> list[Text]:
    """Why a cell or a whole column is n/a: one line per reason, never one per cell.

    A column without any value is not shown and has one line: the reason of most of its rows. Unless `events`
    those of hardware events have none.
    """
    titles = COLUMN_OF_KEY | (VERBOSE_COLUMN_OF_KEY if verbose else {})
    titles = {key: title for key, title in titles.items() if events or key not in EVENT_COLUMNS}
    where: dict[tuple[str, str], list[str]] = defaultdict(list)  # reason, accounts -> column titles
    for key, title in titles.items():
        unknown = [row for row in rows if getattr(row, key) is None and row.reasons.get(key) not in counted]
        by_reason = gathered((plain_reason(row.reasons.get(key, "")), COPIES[row.account]) for row in unknown)
        if sum(map(len, by_reason.values())) == len(rows) > 0:
            where[max(by_reason, key=lambda reason: len(by_reason[reason])), ""].append(title)
        else:
            for reason, accounts in by_reason.items():
                where[reason, f" of {', '.join(dict.fromkeys(accounts))}"].append(title)
    lines: list[Text] = []
    for (reason, of_accounts), columns in where.items():
        lines += wrap(f"n/a: {', '.join(columns)}{of_accounts}: {reason}", width, indent=2, style="dim")
    return lines


def plain_reason(reason: str) -> str:
    """A reason without the name of the event in front: the same for each event, so that it is said once."""
    event, _, rest = reason.partition(": ")
    return rest if rest and event_name(event) in EVENT_NAMES else reason

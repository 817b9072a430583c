"""Whether the samples say how much of a watched program's time is copying in its own memory. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from copyscope.ledger.attribution import SideTime, time_event
from copyscope.ledger.share import Share, percent, share_of_samples
from copyscope.record.derived import AccountRow
from copyscope.record.measured import Measured
from copyscope.record.sections import Interval
from copyscope.record.watched import UserCode
from copyscope.stats import LEVEL
from copyscope.taxonomy.events import EVENT_COLUMNS, event_name
from copyscope.taxonomy.taxonomy import USER_SYMBOL

# Of its samples in user mode so many may be in code of which nobody knows what it does.
UNKNOWN_MOST = 0.05
# Of fewer samples the callers are not told apart: of 20, a half is 30 to 70 %.
CALLERS_LEAST = 20
UNNAMED = "callers that are not known"


def of_time(raw: Measured) -> list[UserCode]:
    """Rows of the event that divides time."""
    names = time_event(raw.samples, raw.sampler.events) or ()
    rows = [] if raw.user_code is None else raw.user_code
    return [row for row in rows if event_name(row.event) in names]


def why_unknown(raw: Measured) -> str | None:
    """Why its own copies are not known: it is mostly code that nobody can name; None where they are."""
    rows = of_time(raw)
    unknown = [row for row in rows if row.reason is not None]
    nameless, everything = (sum(row.samples for row in some) for some in (unknown, rows))
    if nameless <= UNKNOWN_MOST * everything:
        return None
    worst = max(unknown, key=lambda row: row.samples)
    return (
        f"{percent(worst.samples / everything)} of its time in user mode is in {worst.file}: {worst.reason}"
    )


def called_by(raw: Measured) -> list[tuple[str, str, float]]:
    """Who calls its own copies: (name, `FILE:LINE` if it is known, part of their samples), the largest first.

    None of too few samples.
    """
    names = time_event(raw.samples, raw.sampler.events) or ()
    sums: Counter[tuple[str, str]] = Counter()
    for row in raw.user_callers or []:
        if event_name(row.event) in names:
            sums[row.caller or UNNAMED, (row.source or "").rpartition("/")[2]] += row.samples
    everything = sums.total()
    if everything < CALLERS_LEAST:
        return []
    return [(*who, count / everything) for who, count in sums.most_common()]


def bounds(raw: Measured, time: SideTime) -> Share | None:
    """Of its CPU time: at least what was seen to copy, at most that and all code that nobody can name.

    raw: as it was measured; time: of its samples. None without a sample.
    """
    names = time_event(raw.samples, raw.sampler.events) or ()
    user = [
        row
        for row in raw.samples
        if row.side == "target" and row.context == "user" and event_name(row.event) in names
    ]
    whole, code = time.weights.all_weight, of_time(raw)
    everything = sum(row.samples for row in code)
    if not whole or not everything:
        return None
    seen = sum(row.weight for row in user if row.category == "gather") / whole
    nameless = sum(row.samples - row.copy_samples for row in code if row.reason is not None) / everything
    most = seen + nameless * sum(row.weight for row in user) / whole
    return Share(None, share_of_samples(time, seen).low, share_of_samples(time, most).high)


def decided(raw: Measured) -> Measured:
    """The run, with its own copies among its other work where not all of them are known."""
    if why_unknown(raw) is None:
        return raw
    user = {"kind": "stage", "category": "user", "symbol": USER_SYMBOL}
    changed = [
        structs.replace(row, **user) if (row.category, row.context) == ("gather", "user") else row
        for row in raw.samples
    ]
    return structs.replace(raw, samples=changed)


def bounded(raw: Measured, ledger: Sequence[AccountRow], times: Mapping[str, SideTime]) -> list[AccountRow]:
    """The ledger, whose row of a program's own copies is null with the reason where they are not known.

    raw: as it was measured. The bounds that are known all the same are the interval of that row.
    """
    why = why_unknown(raw)
    if why is None:
        return list(ledger)
    known, all_ns = bounds(raw, times["target"]), times["target"].all_ns
    names = ("cpu_ns", "share", "ns_per_kib", "samples", "ci", *EVENT_COLUMNS)
    unknown: dict[str, Any] = {**dict.fromkeys(names), "events": {}}
    if known is not None and all_ns:
        unknown["ci"] = Interval(round(known.low * all_ns), round(known.high * all_ns), LEVEL)
        why = f"{known.spoken()} of its CPU time: {why}"
    reasons = {name: why for name, value in unknown.items() if value is None}
    return [
        structs.replace(row, **unknown, reasons=row.reasons | reasons) if row.account == "gather" else row
        for row in ledger
    ]

"""Whether the samples say how much of a watched program's time is copying in its own memory. Pure."""

from collections.abc import Sequence

from msgspec import UNSET, structs

from copyscope.ledger.attribution import time_event
from copyscope.ledger.headline import percent
from copyscope.record.derived import AccountRow
from copyscope.record.program.raw import RawProgramRun, UserCode
from copyscope.taxonomy.events import EVENT_COLUMNS, event_name
from copyscope.taxonomy.taxonomy import USER_SYMBOL

# Of its samples in user mode so many may be in code of which nobody knows what it does.
UNKNOWN_MOST = 0.05


def of_time(raw: RawProgramRun) -> list[UserCode]:
    """Rows of the event that divides time."""
    names = time_event(raw.samples) or ()
    rows = [] if raw.user_code is UNSET else raw.user_code
    return [row for row in rows if event_name(row.event) in names]


def why_unknown(raw: RawProgramRun) -> str | None:
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


def decided(raw: RawProgramRun) -> RawProgramRun:
    """The run, with its own copies among its other work where not all of them are known."""
    if why_unknown(raw) is None:
        return raw
    user = {"kind": "stage", "category": "user", "symbol": USER_SYMBOL}
    changed = [
        structs.replace(row, **user) if (row.category, row.context) == ("gather", "user") else row
        for row in raw.samples
    ]
    return structs.replace(raw, samples=changed)


def told(ledger: Sequence[AccountRow], why: str | None) -> list[AccountRow]:
    """The ledger, whose row of own copies is null with the reason where they are not known."""
    if why is None:
        return list(ledger)
    names = ("cpu_ns", "share", "ns_per_kib", "samples", "ci", *EVENT_COLUMNS)
    unknown, reasons = dict.fromkeys(names), dict.fromkeys(names, why)
    return [
        structs.replace(row, **unknown, reasons=row.reasons | reasons) if row.account == "gather" else row
        for row in ledger
    ]

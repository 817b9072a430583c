"""Whether the samples say how much of a watched program's time is copying or encrypting of its own. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from copyscope.ledger.attribution import SideTime, time_event
from copyscope.ledger.share import Share, percent, share_of_samples
from copyscope.record.derived import AccountRow
from copyscope.record.instruments import Sample
from copyscope.record.measured import Measured
from copyscope.record.sections import Interval
from copyscope.record.watched import UserCode
from copyscope.stats import LEVEL
from copyscope.taxonomy.ciphers import is_whole
from copyscope.taxonomy.events import EVENT_COLUMNS, event_name
from copyscope.taxonomy.taxonomy import USER_SYMBOL

# Its accounts in user mode.
OWN = ("gather", "user_encrypt")
# Of its samples in user mode so many may be in code of which nobody knows what it does.
UNKNOWN_MOST = 0.05
# Of fewer samples the callers are not told apart: of 20, a half is 30 to 70 %.
CALLERS_LEAST = 20
UNNAMED = "callers that are not known"
NOT_TOLD_APART = "stripped: ciphers, handshakes and hashes are not told apart"


def of_time(raw: Measured) -> list[UserCode]:
    """Rows of the event that divides time."""
    names = time_event(raw.samples, raw.sampler.events) or ()
    rows = [] if raw.user_code is None else raw.user_code
    return [row for row in rows if event_name(row.event) in names]


def why_unknown(raw: Measured, account: str) -> str | None:
    """Why its own copies, or ciphers, are not known: much is code that nobody can name; else None."""
    rows = of_time(raw)
    unknown = [row for row in rows if row.reason is not None]
    nameless, everything = (sum(row.samples for row in some) for some in (unknown, rows))
    if nameless > UNKNOWN_MOST * everything:
        worst = max(unknown, key=lambda row: row.samples)
        where, part, why = worst.file, worst.samples / everything, worst.reason
    else:
        user = _in_user_mode(raw)
        unsure, whole = _unsure(user, account), sum(row.weight for row in user)
        part = sum(row.weight for row in unsure) / whole if whole else 0.0
        if part <= UNKNOWN_MOST:
            return None
        where, why = max(unsure, key=lambda row: row.weight).symbol, NOT_TOLD_APART
    return f"{percent(part)} of its time in user mode is in {where}: {why}"


def _in_user_mode(raw: Measured) -> list[Sample]:
    names = time_event(raw.samples, raw.sampler.events) or ()
    return [
        row
        for row in raw.samples
        if row.side == "target" and row.context == "user" and event_name(row.event) in names
    ]


def _unsure(user: Sequence[Sample], account: str) -> list[Sample]:
    """In a library of which no more is known than that it has ciphers."""
    return [row for row in user if account == "user_encrypt" and is_whole(row.symbol)]


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


def bounds(raw: Measured, time: SideTime, account: str) -> Share | None:
    """Of its CPU time: at least what was seen of it, at most that and all code that may be it.

    raw: as it was measured; time: of its samples. None without a sample.
    """
    user = _in_user_mode(raw)
    whole, code = time.weights.all_weight, of_time(raw)
    everything = sum(row.samples for row in code)
    if not whole or not everything:
        return None
    seen = sum(row.weight for row in user if row.category == account) / whole
    nameless = sum(row.samples - row.copy_samples for row in code if row.reason is not None) / everything
    most = seen + nameless * sum(row.weight for row in user) / whole
    most += sum(row.weight for row in _unsure(user, account)) / whole
    return Share(None, share_of_samples(time, seen).low, share_of_samples(time, most).high)


def decided(raw: Measured) -> Measured:
    """The run, with its own copies, and ciphers, among its other work where not all of them are known."""
    unknown = [account for account in OWN if why_unknown(raw, account) is not None]
    if not unknown:
        return raw
    user = {"kind": "stage", "category": "user", "symbol": USER_SYMBOL}
    changed = [
        structs.replace(row, **user) if row.category in unknown and row.context == "user" else row
        for row in raw.samples
    ]
    return structs.replace(raw, samples=changed)


def bounded(raw: Measured, ledger: Sequence[AccountRow], times: Mapping[str, SideTime]) -> list[AccountRow]:
    """The ledger, whose rows of a program's own copies and ciphers are null where these are not known.

    raw: as it was measured. The bounds that are known all the same are the interval of such a row. There is
    no row of ciphers where nothing says that there may be any.
    """
    whys = {account: why_unknown(raw, account) for account in OWN}
    seen = {row.category for row in raw.samples}
    if not seen & {"user_encrypt"} and not _unsure(_in_user_mode(raw), "user_encrypt"):
        ledger = [row for row in ledger if row.account != "user_encrypt" or whys[row.account] is None]
    return [
        row if (why := whys.get(row.account)) is None else _unknown(row, raw, times["target"], why)
        for row in ledger
    ]


def _unknown(row: AccountRow, raw: Measured, time: SideTime, why: str) -> AccountRow:
    known, all_ns = bounds(raw, time, row.account), time.all_ns
    names = ("cpu_ns", "share", "ns_per_kib", "samples", "ci", *EVENT_COLUMNS)
    unknown: dict[str, Any] = {**dict.fromkeys(names), "events": {}}
    if known is not None and all_ns:
        unknown["ci"] = Interval(round(known.low * all_ns), round(known.high * all_ns), LEVEL)
        why = f"{known.spoken()} of its CPU time: {why}"
    reasons = {name: why for name, value in unknown.items() if value is None}
    return structs.replace(row, **unknown, reasons=row.reasons | reasons)

"""The rows of copies against themselves: bytes take time to copy, and time spent copying has moved bytes.

The bytes of a row are counted and its time is sampled, so each is a check on the other. Bytes contradict it
where the samples leave their account less time than the fastest core takes for so many; time does where much
of it lies in functions of an account that moved nothing, while the program did move bytes.
"""

from collections.abc import Mapping, Sequence

from copyscope import stats
from copyscope.ledger.attribution import SideTime, share_of, time_event
from copyscope.ledger.checks.balance import VALIDITY_LEVEL, compare, unchecked
from copyscope.ledger.checks.target import edges, largest
from copyscope.ledger.encrypted import encrypts
from copyscope.ledger.flows import FASTEST_COPY_BYTES_PER_NS
from copyscope.record.derived import AccountRow, Identity
from copyscope.record.measured import Measured
from copyscope.record.segments import select
from copyscope.record.volume import volume
from copyscope.taxonomy.events import event_name

NAME, WHAT = "copy_rows", "copies whose bytes and time exclude each other = none"
# account -> what counts what is under way at the edges of a segment
TAKE_TIME = {"copy_in": ("send", "sent"), "deferred": ("send", "sent"), "copy_out": ("receive", "received")}
# Copied in softirqs, which run on anybody's time; the others are copied by the call.
ELSEWHERE = ("deferred",)
# Softirq work on the time of a process is for the packets of anybody, so only what is done in a call counts.
MOVE_BYTES = {"copy_in": ("copy_in", "pin"), "pin": ("copy_in", "pin"), "copy_out": ("copy_out", "mapped")}
# So much time may lie in the same functions for something else: files, pages for a device.
BESIDE_MOST = 0.05
CIPHER = "kTLS encrypts whole records from where they are: their bytes pass without the copy that is counted"


def copy_rows(raw: Measured, times: Mapping[str, SideTime], rows: Sequence[AccountRow]) -> Identity:
    """How many accounts contradict themselves, by name."""
    unknown = _why_unknown(raw, times)
    if unknown:
        return unchecked(NAME, WHAT, "accounts", unknown)
    moved = {row.account: row.bytes for row in rows if row.bytes is not None}
    found = [*_without_time(raw, times, moved), *_without_bytes(raw, times, moved)]
    named = f" ({'; '.join(found)})" if found else ""
    return compare(NAME, WHAT + named, len(found), 0, "accounts")


def _why_unknown(raw: Measured, times: Mapping[str, SideTime]) -> str | None:
    """Why it cannot be checked."""
    seen = any(row.category == "encrypt" for row in raw.samples)
    if seen or encrypts(raw):
        return CIPHER
    unknown = (side for side in raw.run.sides if not times[side].cpu_ns)
    return next((times[side].reason or f"{side}: no CPU time was sampled" for side in unknown), None)


def _without_time(raw: Measured, times: Mapping[str, SideTime], moved: Mapping[str, int]) -> list[str]:
    found = []
    for account, (direction, done) in TAKE_TIME.items():
        known = moved.get(account, 0)
        if raw.target is not None:
            of_direction = volume(raw.volume, direction, "ledger")
            known -= edges(select(raw.run.segments, "ledger"), done, largest(of_direction))
        if known <= 0:
            continue
        most_ns = _most_ns(raw, times, account)
        if known > most_ns * FASTEST_COPY_BYTES_PER_NS:
            found.append(f"{account}: {moved[account]:,} bytes in at most {most_ns / 1e6:.1f} ms")
    return found


def _without_bytes(raw: Measured, times: Mapping[str, SideTime], moved: Mapping[str, int]) -> list[str]:
    found = []
    for account, direction in MOVE_BYTES.items():
        if moved.get(account) != 0 or not any(moved.get(other) for other in direction) or _has_uncounted(raw):
            continue
        for side in raw.run.sides:
            key = ("account", account, "process")
            samples = times[side].weights.samples.get(key, 0)
            if samples and share_of(times[side], [key], VALIDITY_LEVEL).low > BESIDE_MOST:
                found.append(f"{account}: no byte, but {samples:,} samples of the {side}")
    return found


def _has_uncounted(raw: Measured) -> bool:
    """Whether it had sockets whose bytes are not counted."""
    return raw.target is not None and bool(raw.watched.uncounted)


def _most_ns(raw: Measured, times: Mapping[str, SideTime], account: str) -> float:
    """The time of an account on all sides, at most: what has no name may belong to it."""
    categories = (account, "unattributed")
    found = 0.0
    for side in raw.run.sides:
        keys = [key for key in times[side].weights.samples if key[1] in categories]
        found += share_of(times[side], keys, VALIDITY_LEVEL).high * (times[side].cpu_ns or 0.0)
    return found + (_beside_ns(raw, categories) if account in ELSEWHERE else 0.0)


def _beside_ns(raw: Measured, categories: Sequence[str]) -> float:
    """Of softirq work on the time of others, whosever it is."""
    names = time_event(raw.samples, raw.sampler.events) or ()
    beside = sum(
        row.samples
        for row in raw.samples
        if row.side == "other" and row.category in categories and event_name(row.event) in names
    )
    return stats.poisson(beside, VALIDITY_LEVEL).high * 1e9 / raw.sampler.frequency_hz

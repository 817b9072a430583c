"""Copies of zero-copy sends: of which account they are, and for whom they were made, by the samples. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from msgspec import structs

from copyscope.ledger.attribution import tied, time_event
from copyscope.record.instruments import Sample
from copyscope.record.measured import Measured
from copyscope.taxonomy.callers import CAUSES, LATE, LINEARIZE, PULL
from copyscope.taxonomy.events import event_name

Raw = TypeVar("Raw", Measured, Measured)
# So many samples of the copy at the send call are no chance.
SURE_SAMPLES = 5


def decided(raw: Raw, flagged: int) -> Raw:
    """The run; where sends were flagged as copied, packets made into one piece among those copies.

    Their completion carries the flag, so the bytes are there. Of pages of files nothing completes.
    """
    if flagged <= 0:
        return raw
    changed = [
        structs.replace(row, category="deferred") if _is_linearized(row) else row for row in raw.samples
    ]
    return structs.replace(raw, samples=changed)


def _is_linearized(row: Sample) -> bool:
    whole = row.symbol in LINEARIZE or (row.symbol == PULL and row.caller in CAUSES)
    return row.category == "silent" and whole


def callers(raw: Measured, accounts: Sequence[str]) -> Counter[str]:
    """Function -> samples of the copies that were made for it. Where none was seen there is none."""
    found: Counter[str] = Counter()
    for row in _of_time(raw):
        if row.category in accounts and row.caller is not None:
            found[row.caller] += row.samples
    return found


def sampled(raw: Measured, account: str) -> bool:
    """Whether any time of an account is known to be of this run."""
    return any(row.category == account for row in _of_time(raw))


def at_call(raw: Measured) -> bool:
    """Whether the samples say that sends flagged as copied were copied before the call returned.

    UDP does so where the device cannot gather or work out checksums, or a message is more than a packet
    (__ip_append_data(), net/ipv4/ip_output.c).
    """
    samples: Counter[str] = Counter()
    for row in _of_time(raw):
        samples[row.category] += row.samples
    return samples["copy_in"] >= SURE_SAMPLES and not any(samples[account] for account in LATE)


def _of_time(raw: Measured) -> list[Sample]:
    names = time_event(raw.samples, raw.sampler.events) or ()
    return [row for row in tied(raw.samples) if event_name(row.event) in names]

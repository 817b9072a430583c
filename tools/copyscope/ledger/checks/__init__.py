# SPDX-License-Identifier: GPL-2.0-only
"""Consistency checks: pairs of independent counts that must agree, because both count the same events. Pure.

Checks of counts are tables of balances (own_traffic.py, target.py). copyscope's own traffic is paused at the
start and end of each segment, so its counts must agree exactly: the default tolerance is 0. A watched program
is never paused: the tolerance covers the bytes that moved, or were in transit, as its segments began or
ended.

Checks of times (time.py) share the rule in ledger/tolerance.py. Nothing is adjusted to make a check hold.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from copyscope.base import stats
from copyscope.ledger.attribution import RowKey, SideTime
from copyscope.ledger.tolerance import VALIDITY_LEVEL
from copyscope.record.derived import Identity
from copyscope.record.measured import Measured

# Maximum time in ns between the last reading of a process's clock and its exit: one tick (process_ns(),
# bpf/watch.bpf.c).
TICK_NS = 10_000_000
# Maximum fraction (0..1) of a side's time without samples in a virtual machine, where timers come late on a
# CPU that slept (decision 009). The first screen shows the missing part.
MISSING_IN_GUESTS = 0.5

# Names of checks against counts of the instruments or of TCP. Every other check compares counts of segments.
AGAINST_INSTRUMENTS = frozenset(
    (
        *("sent_bytes", "referenced_bytes", "received_bytes", "received_split", "sent_calls"),
        *("taken_bytes", "taken_split", "relayed_bytes"),
        *("received_calls", "timed_calls", "zerocopy_calls", "acked_bytes", "sender_time", "receiver_time"),
    )
)


class UnknownCount(Exception):
    """Reason why one side of a balance is unknown in this run."""


@dataclass(frozen=True)
class Balance:
    """A check that two counts agree. `left`, `right` and `tolerance` may raise UnknownCount.

    claim: the equation in words
    left, right: functions that return the two counts of a run, in `unit`
    tolerance: function that returns the largest absolute difference between the counts
    applies: True for runs that have both counts
    """

    name: str
    claim: str
    unit: str
    left: Callable[[Measured], float]
    right: Callable[[Measured], float]
    tolerance: Callable[[Measured], float] = lambda _: 0
    applies: Callable[[Measured], bool] = lambda _: True


def check_balances(table: Iterable[Balance], raw: Measured) -> list[Identity]:
    """Check each balance in `table` that applies to this run."""
    checks = []
    for row in table:
        if not row.applies(raw):
            continue
        try:
            # The right count is computed first: if its report is missing, the left count may be incomplete.
            right, left = row.right(raw), row.left(raw)
            tolerance = row.tolerance(raw)
            checks.append(compare(row.name, row.claim, left, right, row.unit, tolerance=tolerance))
        except UnknownCount as reason:
            checks.append(unchecked(row.name, row.claim, row.unit, str(reason)))
    return checks


def compare(name: str, claim: str, left: float, right: float, unit: str, *, tolerance: float = 0) -> Identity:
    """Return a check of two known counts. It holds if they differ by at most the tolerance."""
    return Identity(None, name, claim, left, right, unit, tolerance, abs(left - right) <= tolerance)


def unchecked(name: str, claim: str, unit: str, reason: str) -> Identity:
    """Return a check with an unknown count: `holds` is None, never True."""
    return Identity(reason, name, claim, None, None, unit, 0, None)


def excuse_cut_short(check: Identity) -> Identity:
    """Return the check for a run that ended inside a segment: a broken check becomes an unchecked one."""
    if check.holds is not False or check.name not in AGAINST_INSTRUMENTS:
        return check
    reason = (
        "the run ended inside a segment: the instruments counted a part that no recorded segment contains"
    )
    return unchecked(check.name, check.what, check.unit, reason)


def keys_where(time: SideTime, is_wanted: Callable[[RowKey], bool]) -> list[RowKey]:
    """Return the keys of a side's sampled rows that satisfy a condition."""
    return list(filter(is_wanted, time.weights.samples))


def sampled_ns(time: SideTime, keys: Iterable[RowKey]) -> float:
    """Return the CPU time in ns of some rows of a side, as estimated from their samples."""
    return sum(time.weights.weight.get(key, 0.0) for key in keys) * (time.scale_ns or 0.0)


def bounds_ns(time: SideTime, keys: Iterable[RowKey]) -> stats.Interval:
    """Return the 99.9 % interval of the CPU time of some rows, for a side that has samples."""
    shares = time.weights.interval(keys, VALIDITY_LEVEL).scaled(1 / time.weights.all_weight)
    return shares.scaled(time.cpu_ns or 0.0)


def overstated_ns(time: SideTime, keys: Sequence[RowKey]) -> float:
    """Return the CPU time in ns by which the samples of some rows may overstate their time, by chance."""
    spent_ns = sampled_ns(time, keys)
    return spent_ns - bounds_ns(time, keys).low if spent_ns else 0.0


def understated_ns(time: SideTime, keys: Sequence[RowKey]) -> float:
    """Return the CPU time in ns by which the samples of some rows may understate their time, by chance."""
    return bounds_ns(time, keys).high - sampled_ns(time, keys)

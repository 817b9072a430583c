"""Double entry: two numbers that must agree because they count the same thing in two places.

A table of balances is checked against the raw of a run: of our own traffic, or of a watched program. One
whose side is unknown is `holds: null` with the reason, never true; one that makes no sense for a run is left
out. Nothing is adjusted to make one hold. Own traffic is paused at both ends of a segment, so that its
balances are exact: the tolerance is 0 where a row gives none. A program never is: its tolerance is what moved
at the edges of its segments, and what was under way there.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from copyscope.record.derived import Identity
from copyscope.record.measured import Measured

# A broken identity makes a run worthless, so chance alone must not break one: once in a thousand.
VALIDITY_LEVEL = 0.999

# compared with what the instruments or TCP counted; the others compare segments with segments
AGAINST_OTHERS = frozenset(
    (
        *("sent_bytes", "referenced_bytes", "received_bytes", "received_split", "sent_calls"),
        *("taken_bytes", "taken_split", "relayed_bytes"),
        *("received_calls", "timed_calls", "zerocopy_calls", "acked_bytes", "sender_time", "receiver_time"),
    )
)


class Unknown(Exception):
    """Why one side of a balance is not known in this run."""


@dataclass(frozen=True)
class Balance:
    """One row: left and right in the same unit, and the absolute tolerance; a side may raise Unknown."""

    name: str
    what: str
    unit: str
    left: Callable[[Measured], float]
    right: Callable[[Measured], float]
    tolerance: Callable[[Measured], float] = lambda _: 0
    applies: Callable[[Measured], bool] = lambda _: True


def check(table: Iterable[Balance], raw: Measured) -> list[Identity]:
    """Those of a table that apply."""
    found = []
    for row in table:
        if not row.applies(raw):
            continue
        try:
            # First the right side: what a report does not say, the program's marks may not either.
            right, left = row.right(raw), row.left(raw)
            found.append(compare(row.name, row.what, left, right, row.unit, tolerance=row.tolerance(raw)))
        except Unknown as why:
            found.append(unchecked(row.name, row.what, row.unit, str(why)))
    return found


def compare(name: str, what: str, left: float, right: float, unit: str, *, tolerance: float = 0) -> Identity:
    """An identity with both sides known."""
    return Identity(None, name, what, left, right, unit, tolerance, abs(left - right) <= tolerance)


def unchecked(name: str, what: str, unit: str, reason: str) -> Identity:
    """An identity one side of which is unknown in this run."""
    return Identity(reason, name, what, None, None, unit, 0, None)


def excused(identity: Identity) -> Identity:
    """Of a run that ended inside a segment: unchecked where it cannot be expected to balance."""
    if identity.holds is not False or identity.name not in AGAINST_OTHERS:
        return identity
    reason = "the run ended inside a segment, of which the instruments saw a part that no segment here holds"
    return unchecked(identity.name, identity.what, identity.unit, reason)

"""All checks of a run: of its balances, of its time, of what its function hooks counted. Pure."""

from collections.abc import Mapping, Sequence

from copyscope.ledger.attribution import SideTime
from copyscope.ledger.checks import own_traffic, target
from copyscope.ledger.checks.balance import check, excused
from copyscope.ledger.checks.exact import function_identities
from copyscope.ledger.checks.time import time_identities
from copyscope.record.derived import AccountRow, Identity, Sides, StageRow
from copyscope.record.measured import Measured
from copyscope.record.segments import cut_short


def checks_of(
    raw: Measured,
    times: Mapping[str, SideTime],
    sides: Sides,
    rows: Sequence[AccountRow | StageRow],
    gather_ns: float | None,
) -> list[Identity]:
    """rows: of the ledger and of the stages, also where a program's own copies are not all known."""
    table = own_traffic.ROWS if raw.target is None else target.ROWS
    found = [
        *check(table, raw),
        *time_identities(raw, times, sides, rows, gather_ns),
        *function_identities(raw),
    ]
    # A run that ended inside a segment has broken some of them by that.
    return [excused(one) for one in found] if cut_short(raw.run) else found

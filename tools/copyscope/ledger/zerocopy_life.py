"""The life of zero-copy sends by function hooks: whose memory was copied, and when the notice came. Pure."""

from collections.abc import Sequence

from copyscope.record.derived import CopyRun, Notified, OwnerLife, ZerocopyLife
from copyscope.record.instruments import CopyOwner, Functions
from copyscope.record.program.volume import added
from copyscope.record.sections import Rows

# Of each hook on that life; they are attached together, or not at all.
HOOK = "zerocopy_use"


def zerocopy_life(functions: Functions | None) -> ZerocopyLife | None:
    """The section zerocopy_life; None without the hooks."""
    if functions is None or functions.owners is None:
        return None
    owners = [
        _owned(functions.owners, side) for side in dict.fromkeys(row.owner_side for row in functions.owners)
    ]
    ended = {row.side: row for row in functions.completions or []}
    notified = [
        Notified(
            *(row.side, ended[row.side].copied, ended[row.side].zerocopied, row.count, row.before_return),
            p50_ns=at_most(row.histogram.buckets, 0.5),
            p99_ns=at_most(row.histogram.buckets, 0.99),
        )
        for row in functions.completion_latency or []
    ]
    return ZerocopyLife(sorted(owners, key=lambda owner: -owner.bytes), notified)


def _owned(owners: Sequence[CopyOwner], side: str | None) -> OwnerLife:
    """Deferred copies of one owner's memory, and who ran them, the most frequent first."""
    rows = [row for row in owners if row.owner_side == side]
    runs = [
        CopyRun(row.current_side, row.context, row.calls, row.bytes)
        for row in sorted(rows, key=lambda row: -row.calls)
    ]
    return OwnerLife(side, added(rows, "calls"), added(rows, "bytes"), runs)


def at_most(buckets: Rows, share: float) -> int | None:
    """The largest whole value of the bucket that holds the quantile; None of no values."""
    wanted = share * sum(count for _, _, count in buckets)
    seen = 0
    for _, high, count in buckets:
        seen += count
        if count and seen >= wanted:
            return high - 1
    return None

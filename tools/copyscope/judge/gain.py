"""What a crossover says zero-copy saves on such a path: of the traffic that was measured. Pure.

It is not what a watched program saves: how much of its time would change with its sends is not known.
"""

import math
from collections.abc import Sequence

from copyscope.judge.crossover_file import OTHER_KIND, SENDER_CPU, AtSize, Found, distance, nearest
from copyscope.ledger.portrait import median_slot
from copyscope.ledger.share import Share
from copyscope.record.check import Whole
from copyscope.units import format_size

NOT_MEASURED = "; what it saves is not measured: copyscope crossover, over this path"


def said_gain(run: Whole, rows: Sequence[Found]) -> str:
    """For a program that sends so, as the end of a sentence."""
    row = nearest([row for row in rows if row.elsewhere is None], run, "zero_copy")
    if row is None or row.quantity != SENDER_CPU or distance(row, run) == OTHER_KIND:
        return NOT_MEASURED
    at = _nearest_size(row, run)
    if at is None or at.ratio is None or at.low is None or at.high is None:
        return NOT_MEASURED
    where = f"in the crossover over {row.path} ({row.file})"
    if at.low <= 1 <= at.high:
        return f"; {where} it made no difference at {format_size(at.size_bytes)}"
    ends = sorted(abs(1 - end) for end in (at.low, at.high))
    change = Share(abs(1 - at.ratio), *ends).shown()
    but, more = (";", "less") if at.high < 1 else (", but", "more")
    return (
        f"{but} {where} zero-copy took {change} {more} of copyscope's own sender's CPU time "
        f"at {format_size(at.size_bytes)}"
    )


def _nearest_size(row: Found, run: Whole) -> AtSize | None:
    """Of the measured sizes that to which half of the program's bytes are nearest."""
    sent = run.portrait.send
    size_bytes = median_slot([[low, low * count] for low, count in sent.sizes]) if sent else 0
    known = [at for at in row.measured if at.low is not None]
    return min(known, key=lambda at: abs(math.log2(at.size_bytes / max(1, size_bytes))), default=None)

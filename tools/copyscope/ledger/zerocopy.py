"""What became of the zero-copy sends, with the cause where they were copied. Pure."""

from collections.abc import Sequence
from typing import Any

from copyscope.ledger.rows import cell
from copyscope.ledger.sends import Sends, sends_of, why_no_completions
from copyscope.ledger.zerocopy_cause import find_cause
from copyscope.record.derived import AccountRow, Zerocopy
from copyscope.record.measured import Measured
from copyscope.record.segments import measured, wall_ns, why_no_ledger, zerocopy_total


def zerocopy_of(raw: Measured, ledger: Sequence[AccountRow]) -> Zerocopy | None:
    """Of a strategy that sends so, or of a program that did; None of others."""
    segments = measured(raw.run.segments)
    sent = sends_of(raw)
    if not sent.zerocopy and (raw.target is not None or zerocopy_total(segments, "sends") is None):
        return None
    silent = cell(ledger, "silent") or 0
    cause = find_cause(raw, sent.copied, silent)
    if raw.target is None:
        return _of_own(raw, sent, silent, sends=sent.zerocopy, cause=cause)
    blind = None if sent.completions else why_no_completions(raw.hooks)
    return Zerocopy(
        sends=sent.zerocopy,
        bytes_sent=sent.zerocopy_bytes,
        completions=None if blind else sent.completions,
        copied=None if blind else sent.copied,
        notifications=None if blind else sent.notifications,
        unseen=None if blind else sent.unseen,
        untold=sent.untold,
        reason=blind,
        cause=cause,
    )


def _of_own(raw: Measured, sent: Sends, silent: int, **known: Any) -> Zerocopy:
    """Its sender keeps more books. `bytes_silent` and `bytes_zero_copy` are of the ledger segments."""
    segments = measured(raw.run.segments)
    made = [s.sender.zerocopy for s in segments if s.sender.zerocopy]
    absent = why_no_ledger(raw.run)
    waits = [(one.waits, one.wait_ns) for one in made if one.waits is not None and one.wait_ns is not None]
    waited: dict[str, Any] = {}
    if len(waits) == len(made):
        threads = 1 if raw.asked.sender == "loop" else raw.asked.threads
        share = sum(ns for _, ns in waits) / (wall_ns(segments) * threads)
        waited = {"waits": sum(count for count, _ in waits), "waiting_share": share}
    return Zerocopy(
        **known,
        bytes_sent=sent.zerocopy_bytes,
        completions=sent.completions,
        copied=sent.copied,
        notifications=sent.notifications,
        bytes_copied=sent.copied_bytes,
        bytes_silent=None if absent else silent,
        bytes_zero_copy=None if absent else max(0, sends_of(raw, "ledger").uncopied_bytes - silent),
        enobufs=zerocopy_total(segments, "enobufs"),
        max_in_flight=max(one.max_in_flight for one in made),
        **waited,
    )

"""The life of zero-copy sends by function hooks: whose memory was copied, and when the notice came. Pure."""

from __future__ import annotations

from typing import Any

from copyscope.ledger.identities.bytes import Identity, compare, unchecked
from copyscope.record.segments import Record, cut_short, select, zerocopy_total

ARM = "functions"
# Of each hook on that life; they are attached together, or not at all.
HOOK = "zerocopy_use"


def zerocopy_life(record: Record) -> dict[str, Any] | None:
    """The section zerocopy_life; None without the hooks."""
    functions = record["functions"]
    if functions is None or functions["owners"] is None:
        return None
    completed = {row["side"]: row for row in functions["completions"]}
    return {
        "owners": [_owned(functions["owners"], side) for side in _sides(functions["owners"])],
        "notified": [{**completed[row["side"]], **_latency(row)} for row in functions["completion_latency"]],
    }


def _sides(owners: list[dict[str, Any]]) -> list[str | None]:
    """The owners, the one with the most bytes first."""
    sides = {row["owner_side"] for row in owners}
    return sorted(sides, key=lambda side: -sum(row["bytes"] for row in owners if row["owner_side"] == side))


def _owned(owners: list[dict[str, Any]], side: str | None) -> dict[str, Any]:
    """Deferred copies of one owner's memory, and who ran them, the most frequent first."""
    rows = [row for row in owners if row["owner_side"] == side]
    runs = [
        {
            "side": row["current_side"],
            "context": row["context"],
            "calls": row["calls"],
            "bytes": row["bytes"],
        }
        for row in sorted(rows, key=lambda row: -int(row["calls"]))
    ]
    total = {key: sum(row[key] for row in rows) for key in ("calls", "bytes")}
    return {"owner_side": side, **total, "runs": runs}


def _latency(row: dict[str, Any]) -> dict[str, Any]:
    buckets = row["histogram"]["buckets"]
    return {
        "count": row["count"],
        "before_return": row["before_return"],
        "p50_ns": at_most(buckets, 0.5),
        "p99_ns": at_most(buckets, 0.99),
    }


def at_most(buckets: list[list[int]], share: float) -> int | None:
    """The largest whole value of the bucket that holds the quantile; None of no values."""
    wanted = share * sum(count for _, _, count in buckets)
    seen = 0
    for _, high, count in buckets:
        seen += count
        if count and seen >= wanted:
            return high - 1
    return None


def life_identities(record: Record, again: int) -> list[Identity]:
    """The owner of each deferred byte and the flag of each completion, against what the program was told.

    again: bytes sent a second time, which are copied a second time.
    """
    functions = record["functions"]
    if functions is None or cut_short(record):
        return []
    segments = select(record, ARM)
    completions = zerocopy_total(segments, "completions")
    if completions is None:
        return []
    copied_bytes = zerocopy_total(segments, "bytes_copied") or 0
    copied = zerocopy_total(segments, "copied") or 0
    owned_what = "deferred copies of the sender's memory = bytes of sends reported copied"
    copied_what = "copied sends by the kernel's notifications = sends reported copied"
    complete_what = "sends in the kernel's notifications = completions read"
    if functions["owners"] is None:
        reason = next((row["reason"] for row in record["hooks"] if row["id"] == HOOK), None)
        reason = f"its hooks: {reason or 'none'}"
        return [
            unchecked("functions_owner", owned_what, "bytes", reason),
            unchecked("functions_copied", copied_what, "sends", reason),
            unchecked("functions_completions", complete_what, "sends", reason),
        ]
    owned = sum(row["bytes"] for row in functions["owners"] if row["owner_side"] == "sender")
    ended = [row for row in functions["completions"] if row["side"] == "sender"]
    kernel_copied = sum(row["copied"] for row in ended)
    kernel_all = kernel_copied + sum(row["zerocopied"] for row in ended)
    return [
        compare("functions_owner", owned_what, owned, copied_bytes, "bytes", tolerance=again),
        compare("functions_copied", copied_what, kernel_copied, copied, "sends"),
        compare("functions_completions", complete_what, kernel_all, completions, "sends"),
    ]

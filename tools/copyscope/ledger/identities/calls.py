"""Identities of calls, completions and totals: what the program counted against what the kernel counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from copyscope.ledger import flows
from copyscope.ledger.identities.bytes import Identity, compare, unchecked, why_blind
from copyscope.record.call_totals import PROGRAM
from copyscope.record.segments import (
    Record,
    byte_segments,
    measured,
    reported,
    select,
    spliced_total,
    total,
    why_no_calls,
    zerocopy_total,
)

# Where all calls are counted (`calls[].counted_at`) -> the hook of the sends.
COUNTING = {"socket": "call_sent", "return": "syscall_exit"}


def sent_calls(record: Record) -> Identity | None:
    """Send calls that the program made and that took something against those that the kernel counted.

    Of sendfile(2) the socket sees a call for each pipe full of pages: its calls are left out, on both sides.
    """
    segments = byte_segments(record)
    spliced = spliced_total(segments, "calls") or 0
    if spliced and spliced == total(segments, "sender", "calls"):
        return None
    name, what = "sent_calls", "send calls made, less those refused = send calls counted"
    kernel = flows.counted(record, "sender", flows.SEND_HOOK)
    if kernel is None:
        return unchecked(name, what, "calls", flows.why_uncounted(record, flows.SEND_HOOK))
    made = flows.accepted_sends(segments)
    return compare(name, what, made, kernel.calls - kernel.spliced_calls, "calls")


def received_calls(record: Record) -> Identity:
    """Receive calls that the program made against those that the kernel counted."""
    name, what = "received_calls", "receive calls made = receive calls counted"
    kernel = flows.counted(record, "receiver", flows.RECEIVE_HOOK)
    if kernel is None:
        return unchecked(name, what, "calls", flows.why_uncounted(record, flows.RECEIVE_HOOK))
    return compare(name, what, total(byte_segments(record), "receiver", "calls"), kernel.calls, "calls")


def timed_calls(record: Record) -> Identity:
    """Send calls in the segments with the call timer: it times one in so many, and counts all."""
    name, what = "timed_calls", "send calls made = send calls seen by the call timer (calls segments)"
    segments = select(record, "calls")
    if not segments:
        return unchecked(name, what, "calls", why_no_calls(record))
    if any(row.get("counted_at") == PROGRAM for row in record["calls"]):
        why = "only the timed calls are counted in these: all of them are in segments of the arm bytes"
        return unchecked(name, what, "calls", why)
    made: dict[str, int] = {}
    for segment in segments:
        for syscall, calls in segment["sender"]["send_syscalls"].items():
            made[_kernel_name(syscall)] = made.get(_kernel_name(syscall), 0) + int(calls)
    if not any(row["side"] == "sender" for row in record["calls"]) and any(made.values()):
        return unchecked(name, what, "calls", "the sender's calls were not counted: see the hooks")
    rows = [
        row for row in record["calls"] if row["side"] == "sender" and _kernel_name(row["syscall"]) in made
    ]
    seen = sum(int(row["calls"]) for row in rows)
    # What the counting program missed because it met itself is known, and marks the run by itself.
    counted_at = {row.get("counted_at") for row in rows} & {*COUNTING}
    missed = sum(_missed(record, COUNTING[at]) for at in counted_at)
    return compare(name, what, sum(made.values()), seen, "calls", tolerance=missed)


def _missed(record: Record, hook: str) -> int:
    """How often the kernel did not run this hook's program; 0 where it does not say."""
    loss = record["loss"].get(f"recursion_{hook}")
    return int((loss["count"] if isinstance(loss, dict) else loss) or 0)


def kernel_zerocopy_calls(record: Record) -> Identity | None:
    """Zero-copy sends that the kernel counted against those that the program made."""
    name, what = "zerocopy_calls", "zero-copy sends made = zero-copy sends counted"
    if zerocopy_total(measured(record), "sends") is None:
        return None
    kernel = flows.counted(record, "sender", flows.SEND_HOOK)
    made = zerocopy_total(byte_segments(record), "sends")
    if kernel is None or kernel.zerocopy_calls is None or made is None:
        return unchecked(name, what, "calls", why_blind(record, kernel))
    return compare(name, what, made, kernel.zerocopy_calls, "calls")


def completions(record: Record) -> Identity | None:
    """Every zero-copy send is completed once: a segment ends drained."""
    segments = measured(record)
    sends, completed = zerocopy_total(segments, "sends"), zerocopy_total(segments, "completions")
    if sends is None or completed is None:
        return None
    return compare("completions", "zero-copy sends = completions", sends, completed, "sends")


def report_totals(record: Record, side: str, key: str) -> Identity:
    """The marks at the segments' ends against the final report, when the segments cover the whole run."""
    unit = key if key in ("bytes", "calls", "messages") else "ns"
    name, what = f"{side}_{key}_of_run", f"{side}: {key} of all segments = {key} of its report"
    segments = record["run"]["segments"]
    report = record["traffic"][side]
    if not reported(record, side):
        return unchecked(name, what, unit, f"the {side} gave no report")
    if report.get(key) is None:
        return unchecked(name, what, unit, f"the {side} did not report its {key}")
    outside = [t for t, moved in report["slices"] if moved and not _covered(t, segments)]
    if outside:
        return unchecked(name, what, unit, f"{len(outside)} slices of 100 ms lie outside of every segment")
    return compare(name, what, total(segments, side, key), int(report[key]), unit)


def _covered(slice_ns: int, segments: list[dict[str, Any]]) -> bool:
    return any(slice_ns < s["end_ns"] and slice_ns + 100_000_000 > s["begin_ns"] for s in segments)


def _kernel_name(syscall: str) -> str:
    """The C library's send() and recv() are the system calls sendto and recvfrom."""
    return {"send": "sendto", "recv": "recvfrom"}.get(syscall, syscall)


IDENTITIES: tuple[Callable[[Record], Identity | None], ...] = (
    sent_calls,
    received_calls,
    timed_calls,
    kernel_zerocopy_calls,
    completions,
)


def call_identities(record: Record) -> list[Identity]:
    """All identities of calls that this strategy has, and the totals of both reports."""
    found = [identity(record) for identity in IDENTITIES]
    return [identity for identity in found if identity is not None] + [
        report_totals(record, side, key)
        for side in ("sender", "receiver")
        for key in ("bytes", "messages", "calls")
    ]

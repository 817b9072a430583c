"""What claims about a mechanism count in a record: hits, of so many. Pure."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from copyscope.compare.estimates import Missing
from copyscope.ledger.attribution import tied
from copyscope.record.segments import PROCESSES, Record, samples_of, segments_of, select, total, undisturbed

Counted = tuple[float, float] | Missing
LATE = ("deferred", "silent")
STACK = ("tcp_ip", "device", "softirq")
WITHOUT_DMA = frozenset(("veth", "lo", "loopback", None))
EVENTS = ("LLC-load-misses", "L1-dcache-load-misses")
TLB_FLUSHES = "tlb-flushes"


def _samples(record: Record, categories: Collection[str] | None, sides: Iterable[str]) -> int:
    rows = tied(samples_of(record))
    return sum(
        r.samples for r in rows if r.side in sides and (categories is None or r.category in categories)
    )


def within_the_call(record: Record) -> Counted:
    """Of the samples in copies of the sender's data, those in the call, in its own context."""
    sides = ("sender", "other")
    at_once = _samples(record, ("copy_in",), sides)
    return at_once, at_once + _samples(record, LATE, sides)


def in_that_copy(record: Record) -> Counted:
    return _samples(record, ("copy_in",), ("sender", "other")), int(record["sides"]["sender"]["samples"] or 0)


def in_the_stack(record: Record) -> Counted:
    sides = ("sender", "receiver", "other")
    return _samples(record, STACK, sides), _samples(record, None, sides)


def copied_in(account: str) -> Callable[[Record], Counted]:
    """Bytes that an account of the ledger copied, of those that were sent in its segments."""

    def count(record: Record) -> Counted:
        rows = [row for row in record["ledger"] if row["account"] == account and row["bytes"] is not None]
        return sum(row["bytes"] for row in rows), _sent(record)

    return count


def by_dma(record: Record) -> Counted:
    drivers = {device["driver"] for device in record["topology"]["devices"]}
    if drivers - WITHOUT_DMA:
        return Missing(f"DMA of {', '.join(sorted(map(str, drivers)))} is not visible to the CPU")
    return 0, _sent(record)


def _sent(record: Record) -> int:
    return total(select(segments_of(record), "ledger"), "sender", "bytes")


def flushes_per_send(record: Record) -> Counted:
    """Tracepoint tlb:tlb_flush in the sender, without task switches."""
    counter = record["counters"]["sender"].get(TLB_FLUSHES)
    if counter is None:
        return Missing(f"{TLB_FLUSHES}: was not counted in these runs")
    if counter["value"] is None:
        return Missing(f"{TLB_FLUSHES}: {counter['reason']}")
    return counter["value"], total(select(segments_of(record), "ledger"), "sender", "calls")


def switches_per_send(record: Record) -> Counted:
    return _switches(undisturbed(record)), total(undisturbed(record), "sender", "calls")


def errqueue_reads(record: Record) -> Counted:
    segments = undisturbed(record)
    reads = sum(s.sender.zerocopy.errqueue_reads for s in segments if s.sender.zerocopy)
    return reads, _switches(segments)


def _switches(segments: Any) -> int:
    """How often the sender was switched, of its own will or not."""
    return sum(total(segments, "sender", f"{kind}voluntary_switches") for kind in ("", "in"))


def zeros(record: Record) -> Counted:
    """Counters of caches that counted and say zero; of all that were opened, whether anything counts them."""
    found = [record["counters"][side].get(event) for side in PROCESSES for event in EVENTS]
    opened = [counter for counter in found if counter is not None]
    return sum(counter["value"] == 0 for counter in opened), len(opened)


COUNTS: dict[str, Callable[[Record], Counted]] = {
    "samples of its copies within the call": within_the_call,
    "samples of the sender in that copy": in_that_copy,
    "samples in tcp_ip, device or softirq": in_the_stack,
    "bytes copied by the program": copied_in("gather"),
    "bytes copied into the socket": copied_in("copy_in"),
    "bytes copied by DMA": by_dma,
    "tlb flushes per send": flushes_per_send,
    "context switches per send call": switches_per_send,
    "reads of the error queue per switch": errqueue_reads,
    "readings of zero": zeros,
}

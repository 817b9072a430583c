"""What claims about a mechanism count in a run: hits, of so many. Pure."""

from collections.abc import Callable, Collection, Iterable

from copyscope.judge.metrics import ledger_segments, spenders, switches, undisturbed
from copyscope.ledger.attribution import tied
from copyscope.record.check import Whole
from copyscope.record.segments import PROCESSES, total
from copyscope.stats import Missing

Counted = tuple[float, float] | Missing
LATE = ("deferred", "silent")
STACK = ("tcp_ip", "device", "softirq")
WITHOUT_DMA = frozenset(("veth", "lo", "loopback", None))
EVENTS = ("LLC-load-misses", "L1-dcache-load-misses")
TLB_FLUSHES = "tlb-flushes"


def _samples(run: Whole, categories: Collection[str] | None, sides: Iterable[str]) -> int:
    rows = tied(run.raw.samples)
    return sum(
        r.samples for r in rows if r.side in sides and (categories is None or r.category in categories)
    )


def within_the_call(run: Whole) -> Counted:
    """Of the samples in copies of the sender's data, those in the call, in its own context."""
    sides = ("sender", "other")
    at_once = _samples(run, ("copy_in",), sides)
    return at_once, at_once + _samples(run, LATE, sides)


def in_that_copy(run: Whole) -> Counted:
    return _samples(run, ("copy_in",), ("sender", "other")), spenders(run)["sender"].samples or 0


def in_the_stack(run: Whole) -> Counted:
    sides = ("sender", "receiver", "other")
    return _samples(run, STACK, sides), _samples(run, None, sides)


def copied_in(account: str) -> Callable[[Whole], Counted]:
    """Bytes that an account of the ledger copied, of those that were sent in its segments."""

    def count(run: Whole) -> Counted:
        copied = (row.bytes for row in run.derived.ledger if row.account == account)
        return sum(filter(None, copied)), _sent(run)

    return count


def by_dma(run: Whole) -> Counted:
    drivers = {device.driver for device in run.raw.topology.devices}
    if drivers - WITHOUT_DMA:
        return Missing(f"DMA of {', '.join(sorted(map(str, drivers)))} is not visible to the CPU")
    return 0, _sent(run)


def _sent(run: Whole) -> int:
    return total(ledger_segments(run), "sender", "bytes")


def flushes_per_send(run: Whole) -> Counted:
    """Tracepoint tlb:tlb_flush in the sender, without task switches."""
    counter = run.raw.counters["sender"].get(TLB_FLUSHES)
    if counter is None:
        return Missing(f"{TLB_FLUSHES}: was not counted in these runs")
    if counter.value is None:
        return Missing(f"{TLB_FLUSHES}: {counter.reason}")
    return counter.value, total(ledger_segments(run), "sender", "calls")


def switches_per_send(run: Whole) -> Counted:
    found = undisturbed(run)
    return switches(found, "sender"), total(found, "sender", "calls")


def errqueue_reads(run: Whole) -> Counted:
    found = undisturbed(run)
    reads = sum(s.sender.zerocopy.errqueue_reads for s in found if s.sender.zerocopy)
    return reads, switches(found, "sender")


def zeros(run: Whole) -> Counted:
    """Counters of caches that counted and say zero; of all that were opened, whether anything counts them."""
    found = [run.raw.counters[side].get(event) for side in PROCESSES for event in EVENTS]
    opened = [counter for counter in found if counter is not None]
    return sum(counter.value == 0 for counter in opened), len(opened)


COUNTS: dict[str, Callable[[Whole], Counted]] = {
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

"""Reading the run section: which segments belong to a phase, and what they add up to. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from copyscope.record.hooks import why_not
from copyscope.record.instruments import Hook
from copyscope.record.measured import Machine, Measured, Run, Segment
from copyscope.record.traffic import Report

Record = dict[str, Any]

# the sides of a run of our own traffic, and the only one of a program that was watched
PROCESSES = ("sender", "receiver")
WATCHED = ("target",)
# segments that only warm connections and caches up: recorded, never measured
WARM_UP: Final = "warmup"
# Said of all that the ledger would have.
NO_LEDGER: Final = "copies were not measured: the run ended before, or --instruments leaves them out"
# socket buffers of a few MiB hold the first milliseconds: below this a run measures them and not the path
SHORTEST_LEDGER_NS = 50_000_000


def machine_of(raw: Measured, side: str) -> Machine:
    """The machine that a side ran on."""
    if raw.places is None:
        return raw.machine
    return (raw.places.sender if side == "sender" else raw.places.receiver).machine


def machines(raw: Measured) -> list[Machine]:
    """All machines of a run: one, or one for each side."""
    return [raw.machine] if raw.places is None else [machine_of(raw, side) for side in PROCESSES]


def delivered_bytes(segments: Iterable[Segment]) -> int:
    """Payload that arrived; of a watched program what it moved through its sockets, in either direction."""
    return sum((s.sides.get("receiver") or s.target).bytes for s in segments)


def select(segments: Iterable[Segment], phase: str) -> list[Segment]:
    """The segments of a phase. A fixed number of messages runs in one segment of two: `ledger+calls`."""
    parts = set(phase.split("+"))
    return [s for s in segments if parts <= set(s.phase.split("+"))]


def comparable(segments: Sequence[Segment], phase: str) -> list[Segment]:
    """The segments of a phase, as far as their goodput is whole.

    What a watched program maps or splices out of its sockets is counted where the ledger's hooks are, and
    everywhere from the moment on at which it was seen to do so: segments before that are left out.
    """
    others = [s for s in segments if "ledger" not in s.phase]
    found = select(segments, phase)
    return [s for s in found if _counts_taken(s)] if any(map(_counts_taken, others)) else found


def _counts_taken(segment: Segment) -> bool:
    return "target" in segment.sides and segment.target.counts_taken


def measured(segments: Iterable[Segment]) -> list[Segment]:
    """Every segment but the warm-up."""
    return [s for s in segments if s.phase != WARM_UP]


def why_no_ledger(run: Run) -> str | None:
    """Why nothing of the ledger is known, when no segment had its instruments; None when one had."""
    return None if select(run.segments, "ledger") else NO_LEDGER


def why_no_calls(hooks: Iterable[Hook]) -> str:
    """Why no system call was timed in a run without such a segment."""
    return why_not(("calls",), hooks) or "no segment timed the system calls"


def used(run: Run, instrument: str) -> bool:
    """Whether a segment of this run was to have the hooks of this instrument."""
    if instrument in ("bytes", "copies"):
        return bool(byte_segments(run))
    return instrument not in ("calls", "functions") or bool(select(run.segments, instrument))


def byte_segments(run: Run) -> list[Segment]:
    """Those in which the kernel counted bytes."""
    return [s for s in run.segments if s.phase == run.bytes_phase]


def cut_short(run: Run) -> bool:
    """Whether the run ended inside a segment: the instruments then counted what no segment here holds."""
    return bool(run.interrupted or run.errors)


def counted_whole(raw: Measured) -> bool:
    """Whether a command ran from its first moment to its last in one segment with all instruments (--whole):
    then its bytes and calls are all there, however short it was."""
    segments = raw.run.segments
    if raw.target is None or len(segments) != 1 or raw.target.ended != "the command ended":
        return False
    return "+" in segments[0].phase or segments[0].phase == "functions"


def why_undivided(raw: Measured) -> str | None:
    """Why the time of such a command is no ledger; None for any that is long enough."""
    elapsed_ns = wall_ns(raw.run.segments)
    if elapsed_ns >= SHORTEST_LEDGER_NS or not counted_whole(raw):
        return None
    return (
        f"it ran for {elapsed_ns / 1e6:.1f} ms, too short for its time to be divided "
        f"(at least {SHORTEST_LEDGER_NS // 1_000_000} ms); its bytes and calls are all counted"
    )


def reported(report: Report) -> bool:
    """Whether a side's program gave its report; of one that had died only its last totals are known.

    A report always says with which options the program ran.
    """
    return bool(report.options)


def total(segments: Iterable[Segment], side: str, key: str) -> int:
    """Sum of one of a side's totals over segments, in the unit of the key."""
    return sum(getattr(s.sides[side], key) for s in segments)


def zerocopy_total(segments: Sequence[Segment], key: str) -> int | None:
    """Sum of one of the sender's zero-copy totals; None when the strategy has none."""
    return _sum([s.sender.zerocopy for s in segments], key)


def spliced_total(segments: Sequence[Segment], key: str) -> int | None:
    """Sum of what the sender gave as pages, of a file or by vmsplice: `calls` or `bytes`; None: none."""
    return _sum([s.sender.spliced for s in segments], key)


def taken_total(segments: Sequence[Segment], key: str) -> int | None:
    """Sum of what a relay took from the program before it; None of a sender that is none."""
    return _sum([s.sender.taken for s in segments], key)


def relays(run: Run) -> bool:
    """Whether the sender passes on what another program sends to it."""
    return any("sender" in s.sides and s.sender.taken is not None for s in run.segments)


def sent_by_ring(segments: Sequence[Segment]) -> bool:
    """Whether the sender sends through an io_uring."""
    return bool(segments) and all(s.sender.io_uring for s in segments)


def mapped_total(segments: Sequence[Segment], key: str) -> int | None:
    """Sum of what the receiver took by TCP_ZEROCOPY_RECEIVE; None when it takes nothing so."""
    return _sum([s.receiver.mapped for s in segments], key)


def spliced_out(segments: Sequence[Segment], key: str) -> int | None:
    """Sum of what the receiver took by splice(2): `calls` or `bytes`; None when it takes nothing so."""
    return _sum([s.receiver.spliced for s in segments], key)


def uncopied_out(segments: Sequence[Segment]) -> int:
    """Bytes that the receiver took and the kernel copied nowhere: thrown away, mapped or spliced."""
    without = (mapped_total(segments, "bytes") or 0) + (spliced_out(segments, "bytes") or 0)
    return total(segments, "receiver", "truncated_bytes") + without


def _sum(parts: Sequence[Any], key: str) -> int | None:
    return sum(getattr(part, key) for part in parts) if parts and all(parts) else None


def wall_ns(segments: Iterable[Segment]) -> int:
    """Elapsed time of segments, pauses between them left out."""
    return sum(s.end_ns - s.begin_ns for s in segments)


def goodput_gbps(segments: Sequence[Segment]) -> float | None:
    """Payload that arrived over the time it took: bits per nanosecond are Gbit/s. None without time."""
    elapsed_ns = wall_ns(segments)
    return delivered_bytes(segments) * 8 / elapsed_ns if elapsed_ns > 0 else None


def duration_s(raw: Measured) -> float | None:
    """For how long it was to run; None: for a number of messages, or to the end of what is watched."""
    return raw.target.duration_s if raw.target is not None else raw.asked.duration_s

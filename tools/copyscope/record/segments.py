"""Reading the run section: which segments belong to an arm, and what they add up to. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

from msgspec import UNSET, convert

from copyscope.record.hooks import why_not
from copyscope.record.instruments import Hook, Sample
from copyscope.record.program.raw import Moved, ProgramSegment, RawProgramRun
from copyscope.record.raw import (
    Machine,
    Measured,
    RawRun,
    Run,
    RunBase,
    Segment,
    SegmentBase,
)
from copyscope.record.traffic import Report, Totals

Record = dict[str, Any]
Side = Literal["sender", "receiver", "target"]
AnySegment = TypeVar("AnySegment", bound=SegmentBase)

# the sides of a run of our own traffic, and the only one of a program that was watched
PROCESSES: tuple[Side, ...] = ("sender", "receiver")
WATCHED: tuple[Side, ...] = ("target",)
# segments that only warm connections and caches up: recorded, never measured
WARM_UP: Final = "warmup"
# socket buffers of a few MiB hold the first milliseconds: below this a run measures them and not the path
SHORTEST_LEDGER_NS = 50_000_000


def segments_of(record: Record) -> list[Any]:
    """The segments of a record of either kind."""
    rows = record["run"]["segments"]
    return convert(rows, list[Segment] if record.get("target") is None else list[ProgramSegment])


def samples_of(record: Mapping[str, Any]) -> list[Sample]:
    """What was sampled, of a record of either kind."""
    return convert(record["samples"], list[Sample])


def undisturbed(record: Record) -> list[Segment]:
    """Those without instruments; where there are none, those of the ledger."""
    segments = segments_of(record)
    return select(segments, "unprobed") or select(segments, "ledger")


def processes(raw: Measured) -> tuple[Side, ...]:
    """The sides that are processes."""
    return WATCHED if isinstance(raw, RawProgramRun) else PROCESSES


def machine_of(raw: Measured, side: str) -> Machine:
    """The machine that a side ran on."""
    places = raw.places if isinstance(raw, RawRun) else UNSET
    if places is UNSET:
        return raw.machine
    return (places.sender if side == "sender" else places.receiver).machine


def machines(raw: Measured) -> list[Machine]:
    """All machines of a run: one, or one for each side."""
    two = isinstance(raw, RawRun) and raw.places is not UNSET
    return [machine_of(raw, side) for side in PROCESSES] if two else [raw.machine]


def totals(segment: SegmentBase, side: str) -> Totals | Moved:
    """What one side did in a segment."""
    found: Totals | Moved = getattr(segment, side)
    return found


def delivered_bytes(segments: Sequence[SegmentBase]) -> int:
    """Payload that arrived; of a watched program what it moved through its sockets, in either direction."""
    return sum(
        s.target.bytes if isinstance(s, ProgramSegment) else totals(s, "receiver").bytes for s in segments
    )


def select(segments: Iterable[AnySegment], arm: str) -> list[AnySegment]:
    """The segments of an arm. A fixed number of messages runs in one segment of two: `ledger+calls`."""
    parts = set(arm.split("+"))
    return [s for s in segments if parts <= set(s.arm.split("+"))]


def comparable(segments: Sequence[AnySegment], arm: str) -> list[AnySegment]:
    """The segments of an arm, as far as their goodput is whole.

    What a watched program maps or splices out of its sockets is counted where the ledger's hooks are, and
    everywhere from the moment on at which it was seen to do so: segments before that are left out.
    """
    others = [s for s in segments if "ledger" not in s.arm]
    found = select(segments, arm)
    return [s for s in found if _counts_taken(s)] if any(map(_counts_taken, others)) else found


def _counts_taken(segment: SegmentBase) -> bool:
    return isinstance(segment, ProgramSegment) and segment.target.counts_taken


def measured(segments: Iterable[AnySegment]) -> list[AnySegment]:
    """Every segment but the warm-up."""
    return [s for s in segments if s.arm != WARM_UP]


def why_no_ledger(run: RunBase) -> str | None:
    """Why nothing of the ledger is known, when no segment had its instruments; None when one had."""
    return None if select(run.segments, "ledger") else "no segment of the arm ledger in this run"


def why_no_calls(hooks: Iterable[Hook]) -> str:
    """Why no system call was timed in a run without such a segment."""
    return why_not(("calls",), hooks) or "no segment timed the system calls"


def used(run: RunBase, instrument: str) -> bool:
    """Whether a segment of this run was to have the hooks of this instrument."""
    if instrument in ("bytes", "copies"):
        return bool(byte_segments(run))
    return instrument not in ("calls", "functions") or bool(select(run.segments, instrument))


def byte_segments(run: RunBase) -> list[Any]:
    """Those in which the kernel counted bytes; in records older than the arm `bytes` those of the ledger."""
    arm = run.bytes_arm if isinstance(run, Run) else UNSET
    return select(run.segments, "ledger") if arm is UNSET else [s for s in run.segments if s.arm == arm]


def cut_short(run: RunBase) -> bool:
    """Whether the run ended inside a segment: the instruments then counted what no segment here holds."""
    return bool(run.interrupted or run.errors)


def counted_whole(raw: Measured) -> bool:
    """Whether a command ran from its first moment to its last in one segment with all instruments (--whole):
    then its bytes and calls are all there, however short it was."""
    segments = raw.run.segments
    if not isinstance(raw, RawProgramRun) or len(segments) != 1 or raw.target.ended != "the command ended":
        return False
    return "+" in segments[0].arm or segments[0].arm == "functions"


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


def total(segments: Iterable[SegmentBase], side: str, key: str) -> int:
    """Sum of one of a side's totals over segments, in the unit of the key."""
    return sum(getattr(totals(s, side), key) for s in segments)


def zerocopy_total(segments: Sequence[Segment], key: str) -> int | None:
    """Sum of one of the sender's zero-copy totals; None when the strategy has none."""
    return _sum([s.sender.zerocopy for s in segments], key)


def spliced_total(segments: Sequence[Segment], key: str) -> int | None:
    """Sum of what the sender gave as pages, of a file or by vmsplice: `calls` or `bytes`; None: none."""
    return _sum([s.sender.spliced for s in segments], key)


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


def wall_ns(segments: Iterable[SegmentBase]) -> int:
    """Elapsed time of segments, pauses between them left out."""
    return sum(s.end_ns - s.begin_ns for s in segments)


def goodput_gbps(segments: Sequence[SegmentBase]) -> float | None:
    """Payload that arrived over the time it took: bits per nanosecond are Gbit/s. None without time."""
    elapsed_ns = wall_ns(segments)
    return delivered_bytes(segments) * 8 / elapsed_ns if elapsed_ns > 0 else None

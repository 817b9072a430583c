"""Reading the run section: which segments belong to an arm, and what they add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from copyscope.record.hooks import why_not

Record = dict[str, Any]
Segment = dict[str, Any]
Side = Literal["sender", "receiver", "target"]

# the sides of a run of our own traffic, and the only one of a program that was watched
PROCESSES: tuple[Side, ...] = ("sender", "receiver")
WATCHED: tuple[Side, ...] = ("target",)
# segments that only warm connections and caches up: recorded, never measured
WARM_UP: Final = "warmup"
# socket buffers of a few MiB hold the first milliseconds: below this a run measures them and not the path
SHORTEST_LEDGER_NS = 50_000_000


def watched(record: Record) -> bool:
    """Whether this run watched a program that copyscope did not write."""
    return record.get("target") is not None


def processes(record: Record) -> tuple[Side, ...]:
    """The sides that are processes."""
    return WATCHED if watched(record) else PROCESSES


def delivered_bytes(segments: Sequence[Segment]) -> int:
    """Payload that arrived; of a watched program what it moved through its sockets, in either direction."""
    return total(segments, "target" if segments and "target" in segments[0] else "receiver", "bytes")


def select(record: Record, arm: str) -> list[Segment]:
    """The segments of an arm. A fixed number of messages runs in one segment of two: `ledger+calls`."""
    parts = set(arm.split("+"))
    return [s for s in record["run"]["segments"] if parts <= set(s["arm"].split("+"))]


def comparable(record: Record, arm: str) -> list[Segment]:
    """The segments of an arm, as far as their goodput is whole.

    What a watched program maps or splices out of its sockets is counted where the ledger's hooks are, and
    everywhere from the moment on at which it was seen to do so: segments before that are left out.
    """
    others = [s for s in record["run"]["segments"] if "ledger" not in s["arm"]]
    found = select(record, arm)
    return [s for s in found if _counts_taken(s)] if any(map(_counts_taken, others)) else found


def _counts_taken(segment: Segment) -> bool:
    return bool(segment.get("target", {}).get("counts_taken"))


def measured(record: Record) -> list[Segment]:
    """Every segment but the warm-up."""
    return [s for s in record["run"]["segments"] if s["arm"] != WARM_UP]


def why_no_ledger(record: Record) -> str | None:
    """Why nothing of the ledger is known, when no segment had its instruments; None when one had."""
    return None if select(record, "ledger") else "no segment of the arm ledger in this run"


def byte_segments(record: Record) -> list[Segment]:
    """Those in which the kernel counted bytes; in records older than the arm `bytes` those of the ledger."""
    if "bytes_arm" not in record["run"]:
        return select(record, "ledger")
    return [s for s in record["run"]["segments"] if s["arm"] == record["run"]["bytes_arm"]]


def why_no_bytes(record: Record) -> str | None:
    """Why the kernel counted no bytes, when no segment had the hooks for it; None when one had."""
    if byte_segments(record):
        return None
    return why_no_ledger(record) or "no segment of the arm bytes in this run"


def why_no_calls(record: Mapping[str, Any]) -> str:
    """Why no system call was timed in a run without such a segment."""
    return why_not(("calls",), record["hooks"]) or "no segment timed the system calls"


def used(record: Record, instrument: str) -> bool:
    """Whether a segment of this run was to have the hooks of this instrument."""
    if instrument in ("bytes", "copies"):
        return bool(byte_segments(record))
    if instrument in ("calls", "functions"):
        return bool(select(record, instrument))
    return True


def counted_apart(record: Record) -> bool:
    """Whether the ledger's own segments have no count of bytes but the programs'."""
    return bool(record["run"].get("bytes_arm") == "bytes")


def cut_short(record: Record) -> bool:
    """Whether the run ended inside a segment: the instruments then counted what no segment here holds."""
    return bool(record["run"].get("interrupted") or record["run"].get("errors"))


def counted_whole(record: Record) -> bool:
    """Whether a command ran from its first moment to its last in one segment with all instruments (--whole):
    then its bytes and calls are all there, however short it was."""
    segments = record["run"]["segments"]
    if not watched(record) or len(segments) != 1 or record["target"]["ended"] != "the command ended":
        return False
    return "+" in segments[0]["arm"] or segments[0]["arm"] == "functions"


def why_undivided(record: Record) -> str | None:
    """Why the time of such a command is no ledger; None for any that is long enough."""
    elapsed_ns = wall_ns(record["run"]["segments"])
    if elapsed_ns >= SHORTEST_LEDGER_NS or not counted_whole(record):
        return None
    return (
        f"it ran for {elapsed_ns / 1e6:.1f} ms, too short for its time to be divided "
        f"(at least {SHORTEST_LEDGER_NS // 1_000_000} ms); its bytes and calls are all counted"
    )


def reported(record: Record, side: str) -> bool:
    """Whether a side's program gave its report; of one that had died only its last totals are known.

    A report always says with which options the program ran.
    """
    return bool(record["traffic"][side]["options"])


def total(segments: Sequence[Segment], side: str, key: str) -> int:
    """Sum of one of a side's totals over segments, in the unit of the key."""
    return sum(int(s[side][key]) for s in segments)


def zerocopy_total(segments: Sequence[Segment], key: str) -> int | None:
    """Sum of one of the sender's zero-copy totals; None when the strategy has none."""
    parts = [s["sender"]["zerocopy"] for s in segments]
    if not parts or any(part is None for part in parts):
        return None
    return sum(int(part[key]) for part in parts)


def spliced_total(segments: Sequence[Segment], key: str) -> int | None:
    """Sum of what the sender gave as pages of a file: `calls` or `bytes`; None when its strategy does not."""
    parts = [s["sender"].get("spliced") for s in segments]
    if not parts or any(part is None for part in parts):
        return None
    return sum(int(part[key]) for part in parts)


def wall_ns(segments: Sequence[Segment]) -> int:
    """Elapsed time of segments, pauses between them left out."""
    return sum(int(s["end_ns"]) - int(s["begin_ns"]) for s in segments)


def goodput_gbps(segments: Sequence[Segment]) -> float | None:
    """Payload that arrived over the time it took: bits per nanosecond are Gbit/s. None without time."""
    elapsed_ns = wall_ns(segments)
    return delivered_bytes(segments) * 8 / elapsed_ns if elapsed_ns > 0 else None


def topology_name(record: Record) -> str:
    """The kind of path as the user named it: veth, loopback, veth-xdp, nics."""
    return str(record["topology"]["kind"])

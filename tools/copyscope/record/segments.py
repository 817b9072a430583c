# SPDX-License-Identifier: GPL-2.0-only
"""Select segments of a run, add up their counts, and find hooks that could not be attached. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import convert

from copyscope.record.instruments import Hook
from copyscope.record.measured import Machine, Measured, RunSection, Segment
from copyscope.record.traffic import (
    Mapped,
    ReceiverTotals,
    RelayInput,
    Report,
    SenderTotals,
    SideTotals,
    Spliced,
    TargetTotals,
    ZerocopyTotals,
)

Part = TypeVar("Part")

# Names of the processes of our own traffic, and of the watched process.
PROCESSES = ("sender", "receiver")
WATCHED = ("target",)
# Phase of the segment that only warms up connections and caches, and is never measured.
WARM_UP: Final = "warmup"
# Reason for each null value in a record that has no ledger.
NO_LEDGER: Final = "copies were not measured: the run ended before, or --instruments leaves them out"
# Shortest time in ns that the ledger divides: a shorter run mainly fills the socket buffers of a few MiB.
SHORTEST_LEDGER_NS = 50_000_000


def machine_of(raw: Measured, side: str) -> Machine:
    """Return the machine that a process ran on."""
    if raw.places is None:
        return raw.machine
    return (raw.places.sender if side == "sender" else raw.places.receiver).machine


def machines(raw: Measured) -> list[Machine]:
    """Return all machines of a run: one, or the machine of each process."""
    return [raw.machine] if raw.places is None else [machine_of(raw, side) for side in PROCESSES]


def delivered_bytes(segments: Iterable[Segment]) -> int:
    """Return the payload bytes that arrived; for a watched process, the bytes sent and received."""
    return sum((s.sides.get("receiver") or s.target).bytes for s in segments)


def cpu_ns_per_byte(segments: Iterable[Segment]) -> list[float]:
    """Return the CPU time of all processes per payload byte, for each segment that moved bytes."""
    return [
        sum(side.process_cpu_ns for side in segment.sides.values()) / payload_bytes
        for segment in segments
        if (payload_bytes := delivered_bytes([segment]))
    ]


def select(segments: Iterable[Segment], phase: str) -> list[Segment]:
    """Return the segments of a phase. A combined segment (`ledger+calls`) belongs to both phases."""
    parts = set(phase.split("+"))
    return [s for s in segments if parts <= set(s.phase.split("+"))]


def comparable(segments: Sequence[Segment], phase: str) -> list[Segment]:
    """Return the segments of a phase with comparable goodputs.

    Data that a watched process maps or splices is counted in `ledger` segments. After the first such data,
    all segments count it, so earlier segments of other phases are left out.
    """
    selected = select(segments, phase)
    complete = [segment for segment in selected if _counts_everything(segment)]
    others = [segment for segment in segments if "ledger" not in segment.phase]
    return complete if any(map(_counts_everything, others)) else selected


def _counts_everything(segment: Segment) -> bool:
    """Return True for a segment of a watched process in which mapped and spliced data was counted."""
    return "target" in segment.sides and segment.target.counts_taken


def measured(segments: Iterable[Segment]) -> list[Segment]:
    """Return every segment except the warm-up."""
    return [s for s in segments if s.phase != WARM_UP]


def why_no_ledger(run: RunSection) -> str | None:
    """Return the reason why the run has no ledger, or None if a segment measured it."""
    return None if select(run.segments, "ledger") else NO_LEDGER


def why_no_calls(hooks: Iterable[Hook]) -> str:
    """Return the reason why a run has no segment that timed system calls."""
    return why_not(("calls",), hooks) or "no segment timed the system calls"


def uses_instrument(run: RunSection, instrument: str) -> bool:
    """Return True if a segment of this run was planned with the hooks of an instrument."""
    if instrument in ("bytes", "copies"):
        return bool(byte_segments(run))
    return instrument not in ("calls", "functions") or bool(select(run.segments, instrument))


def byte_segments(run: RunSection) -> list[Segment]:
    """Return the segments in which the kernel counted bytes."""
    return [s for s in run.segments if s.phase == run.bytes_phase]


def ended_inside_segment(run: RunSection) -> bool:
    """Return True if the run ended inside a segment, so that instruments counted more than its segments."""
    return bool(run.interrupted or run.errors)


def counted_whole(raw: Measured) -> bool:
    """Return True for a command that ran from start to exit in one segment with all instruments (--whole).

    All bytes and calls of the command are counted then, however short it was.
    """
    segments = raw.run.segments
    if raw.target is None or len(segments) != 1 or raw.target.ended != "the command ended":
        return False
    return "+" in segments[0].phase or segments[0].phase == "functions"


def why_undivided(raw: Measured) -> str | None:
    """Return the reason why a --whole command ran too briefly for its time to be divided, or None."""
    elapsed_ns = wall_ns(raw.run.segments)
    if elapsed_ns >= SHORTEST_LEDGER_NS or not counted_whole(raw):
        return None
    return (
        f"it ran for {elapsed_ns / 1e6:.1f} ms, too short for its time to be divided "
        f"(at least {SHORTEST_LEDGER_NS // 1_000_000} ms); all its bytes and calls are counted"
    )


def has_report(report: Report) -> bool:
    """Return True for the report of a program, False for the last totals of a program that died.

    Only a report has the options of the program.
    """
    return bool(report.options)


def sender_sum(segments: Iterable[Segment], count: Callable[[SenderTotals], int]) -> int:
    """Return the sum of one of the sender's counts over segments."""
    return sum(count(s.sender) for s in segments)


def receiver_sum(segments: Iterable[Segment], count: Callable[[ReceiverTotals], int]) -> int:
    """Return the sum of one of the receiver's counts over segments."""
    return sum(count(s.receiver) for s in segments)


def bytes_sent(segments: Iterable[Segment]) -> int:
    """Return the bytes that our sender sent."""
    return sender_sum(segments, lambda sender: sender.bytes)


def bytes_received(segments: Iterable[Segment]) -> int:
    """Return the bytes that our receiver received."""
    return receiver_sum(segments, lambda receiver: receiver.bytes)


def target_sum(segments: Iterable[Segment], count: Callable[[TargetTotals], int]) -> int:
    """Return the sum of one of the watched process's counts over segments."""
    return sum(count(s.target) for s in segments)


def side_sum(segments: Iterable[Segment], side: str, count: Callable[[SideTotals], int]) -> int:
    """Return the sum over segments of a count that all kinds of process have."""
    return sum(count(s.sides[side]) for s in segments)


def zerocopy_sum(segments: Sequence[Segment], count: Callable[[ZerocopyTotals], int]) -> int | None:
    """Return the sum of one of the sender's zero-copy counts, or None if it gets no notifications."""
    return _sum([s.sender.zerocopy for s in segments], count)


def spliced_sum(segments: Sequence[Segment], count: Callable[[Spliced], int]) -> int | None:
    """Return the sum of a count of data that the sender passed as pages, or None if it passed none."""
    return _sum([s.sender.spliced for s in segments], count)


def relay_input_sum(segments: Sequence[Segment], count: Callable[[RelayInput], int]) -> int | None:
    """Return the sum of a count of data that the sender received as a relay, or None if it is no relay."""
    return _sum([s.sender.taken for s in segments], count)


def is_relay(run: RunSection) -> bool:
    """Return True if the sender is a relay: it passes on data that another program sends."""
    return any("sender" in s.sides and s.sender.taken is not None for s in run.segments)


def sent_by_ring(segments: Sequence[Segment]) -> bool:
    """Return True if the sender sends through io_uring."""
    return bool(segments) and all(s.sender.io_uring for s in segments)


def mapped_sum(segments: Sequence[Segment], count: Callable[[Mapped], int]) -> int | None:
    """Return the sum of a count of TCP_ZEROCOPY_RECEIVE, or None if the receiver does not use it."""
    return _sum([s.receiver.mapped for s in segments], count)


def spliced_out_sum(segments: Sequence[Segment], count: Callable[[Spliced], int]) -> int | None:
    """Return the sum of a count of the receiver's splice(2), or None if the receiver does not splice."""
    return _sum([s.receiver.spliced for s in segments], count)


def uncopied_out(segments: Sequence[Segment]) -> int:
    """Return the bytes that were received without a copy: discarded, mapped or spliced."""
    mapped_bytes = mapped_sum(segments, lambda mapped: mapped.bytes) or 0
    spliced_bytes = spliced_out_sum(segments, lambda spliced: spliced.bytes) or 0
    return receiver_sum(segments, lambda receiver: receiver.truncated_bytes) + mapped_bytes + spliced_bytes


def _sum(parts: Sequence[Part | None], count: Callable[[Part], int]) -> int | None:
    """Return the sum of a count over `parts`, one for each segment, or None if a segment lacks this part."""
    present = [part for part in parts if part is not None]
    return sum(map(count, present)) if parts and len(present) == len(parts) else None


def wall_ns(segments: Iterable[Segment]) -> int:
    """Return the elapsed time of segments, without the pauses between them."""
    return sum(s.end_ns - s.begin_ns for s in segments)


def goodput_gbps(segments: Sequence[Segment]) -> float | None:
    """Return the goodput in Gbit/s (arrived payload divided by elapsed time), or None if no time elapsed."""
    elapsed_ns = wall_ns(segments)
    return delivered_bytes(segments) * 8 / elapsed_ns if elapsed_ns > 0 else None


def duration_s(raw: Measured) -> float | None:
    """Return the requested duration, or None if the run ends after some messages, or at a process's exit."""
    return raw.target.duration_s if raw.target is not None else raw.asked.duration_s


# The second part finds hooks that instruments need. Pure.

# States of a hook that works.
WORKS = ("available", "attached")
# States of a hook that does not work.
ABSENT = ("missing", "refused")


def failed_hooks(raw: Measured) -> list[Hook]:
    """Return the required hooks of this run's instruments that could not be attached.

    The sampled tier does not need function hooks; its `tier_reason` explains their absence.
    """
    exact = raw.run.tier == "exact"
    return [hook for hook in absent_hooks(raw.hooks) if exact or hook.instrument != "functions"]


def absent_hooks(hooks: Iterable[Hook]) -> list[Hook]:
    """Return the required hooks that are missing."""
    return [hook for hook in hooks if hook.required and hook.state in ABSENT]


def hooks_of(hooks: Iterable[Hook], side: str) -> list[Hook]:
    """Return the hooks on the machine of a process."""
    return [hook for hook in hooks if hook.side in (None, side)]


def find_hook(hooks: Iterable[Hook], name: str) -> Hook | None:
    """Return the hook with the id `name`, or None."""
    return next((hook for hook in hooks if hook.id == name), None)


def why_absent(hook: Hook) -> str:
    """Return the state of a missing hook, and the reason for it."""
    return f"{hook.state}: {hook.reason or 'no reason given'}"


def why_not(instruments: Iterable[str], hooks: Iterable[Hook | Mapping[str, object]]) -> str | None:
    """Return a message about the first missing hook that the instruments require, or None if all hooks work.

    `instruments`: names of instruments. Function hooks are left out, because choose_tier() examines them.
    """
    needed = set(instruments) - {"functions"}
    absent = absent_hooks(convert(list(hooks), list[Hook]))
    hook = next((hook for hook in absent if hook.instrument in needed), None)
    return None if hook is None else f"{hook.symbol}: {why_absent(hook)}"

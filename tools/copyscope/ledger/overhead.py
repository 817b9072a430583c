"""The observer effect: goodput with instruments on over goodput with them off, paired by block.

Pairing takes drift out: the two phases of a block ran within the same second. Function hooks are compared
with themselves while they do nothing; what that costs is in neither. Of a watched program the whole watch,
all segments and what moved while hooks came and went, stands beside those that only count its bytes. Pure.
"""

from collections.abc import Sequence
from typing import Any

from copyscope import stats
from copyscope.grouping import grouped
from copyscope.record.derived import Overhead, PhaseEffect, Watching
from copyscope.record.measured import Measured, Run, Segment
from copyscope.record.segments import comparable, delivered_bytes, goodput_gbps, select
from copyscope.record.watched import TAKEN

FEWEST_PAIRS = 3
# An effect on goodput that matters. An interval that holds no effect and one of this size tells nothing.
MATTERS = 0.10
NOISY = "too noisy to tell"
PHASES = ("ledger", "calls")
NOT_WORKED_OUT_YET = "known when the run has ended"
# The columns of a ratio that is not known.
UNKNOWN: dict[str, Any] = dict.fromkeys(("ratio", "low", "high", "level", "effect"))
NOT_WATCHED = Watching(reason=NOT_WORKED_OUT_YET, pairs=0, **UNKNOWN)
NOT_WORKED_OUT = Overhead(NOT_WORKED_OUT_YET, None, None, None, None, {}, {}, NOT_WATCHED)


def overhead(raw: Measured) -> Overhead:
    """At the top that of the ledger phase (its goodput is the probed one), below it of every phase."""
    hooked = bool(select(raw.run.segments, "functions"))
    phases = {phase: phase_effect(raw, phase) for phase in (*PHASES, *(("functions",) if hooked else ()))}
    ledger = phases["ledger"]
    watching = None if raw.target is None else cost_of_watching(raw)
    return Overhead(
        *(ledger.reason, ledger.ratio, ledger.low, ledger.high, ledger.level),
        *(ledger.segments, phases, watching),
    )


def phase_effect(raw: Measured, phase: str) -> PhaseEffect:
    """Ratio of a phase to its control, with interval; `effect` is the loss, 1 - ratio. Null below 3 pairs."""
    without = control_of(raw.run, phase)
    control = comparable(raw.run.segments, without)
    probed = comparable(raw.run.segments, phase)
    counts = {without: len(control), phase: len(probed)}
    pairs = block_pairs(raw.run, phase)
    reason, columns = None, UNKNOWN
    if len(pairs) < FEWEST_PAIRS:
        reason = why_unpaired(raw, len(pairs), counts)
    else:
        columns = loss_of(stats.ratio_of(pairs))
    return PhaseEffect(reason=reason, pairs=len(pairs), segments=counts, **columns)


def control_of(run: Run, phase: str) -> str:
    """The phase that is the other half of each pair."""
    return "unarmed" if phase == "functions" and select(run.segments, "unarmed") else "unprobed"


def loss_of(ratio: stats.Estimate) -> dict[str, Any]:
    """The columns of a ratio of goodput that is known; `effect` is the loss."""
    ends = {"low": ratio.low, "high": ratio.high, "level": ratio.level}
    return {"ratio": ratio.value, **ends, "effect": 1 - ratio.value}


def found(low: float, high: float) -> str:
    """What an interval of a ratio says: an effect, none that matters, or that the run was too noisy."""
    if not low <= 1 <= high:
        return "effect seen"
    return "no effect found" if low >= 1 - MATTERS and high <= 1 + MATTERS else NOISY


def block_pairs(run: Run, phase: str) -> list[tuple[float, float]]:
    """(goodput of the phase, goodput of its control) in Gbit/s for each block that has both, above zero."""
    control, probed = comparable(run.segments, control_of(run, phase)), comparable(run.segments, phase)
    pairs = []
    for block in sorted({s.block for s in probed} & {s.block for s in control}):
        with_it, without = (goodput_gbps([s for s in rows if s.block == block]) for rows in (probed, control))
        if with_it and without:
            pairs.append((with_it, without))
    return pairs


def cost_of_watching(raw: Measured) -> Watching:
    """The section `overhead.watching`: null with its reason where there is too little to compare."""
    pairs = watched_pairs(raw)
    if len(pairs) < FEWEST_PAIRS:
        segments = raw.run.segments
        control = len(comparable(segments, "unprobed"))
        reason = why_unpaired(raw, len(pairs), {"unprobed": control, "others": len(segments) - control})
        return Watching(reason=reason, pairs=len(pairs), **UNKNOWN)
    return Watching(reason=None, pairs=len(pairs), **loss_of(stats.ratio_of(pairs)))


def watched_pairs(raw: Measured) -> list[tuple[float, float]]:
    """(goodput of all segments, goodput of those that only count bytes) of each block that has both."""
    segments = raw.run.segments
    # What is mapped or spliced out of a socket is counted within a segment only.
    changes = not any(row.syscall in TAKEN for row in raw.volume)
    control = grouped(comparable(segments, "unprobed"), lambda segment: segment.block)
    pairs = []
    for block, rows in grouped(segments, lambda segment: segment.block).items():
        without = goodput_gbps(control.get(block, []))
        watched = goodput_with_changes(rows) if changes else goodput_gbps(rows)
        if watched and without and len(rows) > len(control[block]):
            pairs.append((watched, without))
    return pairs


def goodput_with_changes(segments: Sequence[Segment]) -> float | None:
    """Bits per nanosecond of these segments, with the time in which their hooks came and went."""
    moved = elapsed_ns = 0
    for one in segments:
        moved += one.target.bytes + one.target.edge_sent_bytes + one.target.edge_received_bytes
        elapsed_ns += one.end_ns - one.begin_ns + one.target.edge_ns
    return moved * 8 / elapsed_ns if elapsed_ns > 0 else None


def why_unpaired(raw: Measured, pairs: int, counts: dict[str, int]) -> str:
    if not all(counts.get(phase, 1) for phase in ("unprobed", "unarmed")):
        if raw.workload is not None and raw.workload.messages is not None:
            return "a fixed number of messages runs in one segment, without a control"
        return "no segment ran without instruments: there is no control"
    if 0 in counts.values():
        return "no segment of this phase in this run"
    if not delivered_bytes(raw.run.segments):
        return "nothing was sent: goodput cannot be compared"
    return f"{pairs} pairs of segments: at least {FEWEST_PAIRS} are needed for an interval: run longer"

# SPDX-License-Identifier: GPL-2.0-only
"""How busy and steady the machine was, which CPUs the sides ran on, and what the instruments cost. Pure.

CPU time of other programs is the busy time of the sides' CPUs (/proc/stat), minus the CPU time of the sides,
of copyscope, and of the run's softirq work. It covers the time from the first measured segment to the end of
the last. /proc/stat counts in ticks of 10 ms, so shares are accurate over seconds but not over milliseconds.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple, TypeVar

from msgspec import structs

from copyscope.base import stats
from copyscope.base.stats import grouped
from copyscope.ledger.slowdown import (
    CLOCK_UNREAD,
    NO_STOPS,
    QUOTAS_UNREAD,
    SIBLINGS_UNREAD,
    describe_clock,
    describe_quota,
    siblings_share,
)
from copyscope.record.derived import MachineState, Overhead, PhaseEffect, PlacementSummary, Watching
from copyscope.record.measured import Measured, Pinned, RunSection, Segment
from copyscope.record.sections import MachineLoad
from copyscope.record.segments import (
    comparable,
    delivered_bytes,
    duration_s,
    goodput_gbps,
    is_relay,
    select,
    wall_ns,
)
from copyscope.record.watched import WITHOUT_RECEIVE_CALL

Effect = TypeVar("Effect", PhaseEffect, Watching)

# A disturbance is reported if other programs took at least BUSY_SHARE of the CPUs, if the hypervisor took at
# least STEAL_SHARE, or if goodput without instruments has a relative standard deviation of SPREAD_SHARE.
# On a quiet machine, 3 % of 594 runs exceeded SPREAD_SHARE.
BUSY_SHARE = 0.10
STEAL_SHARE = 0.02
SPREAD_SHARE = 0.15
# Minimum number of segments without instruments for computing the deviation of goodput.
SEGMENTS_MIN = 3
QUIET = "other programs used little CPU time, and all segments had similar goodput"
# Factor by which the duration of a disturbed run is multiplied for its repetition.
LONGER = 4
# Kinds of disturbance: other programs used the CPUs, goodput varied, or a load generator on this machine (the
# peer) used the CPUs.
BUSY, UNSTEADY, PEER = "busy", "unsteady", "peer"
# Beginning of the sentence about a disturbance.
OPENINGS = {BUSY: "machine busy", UNSTEADY: "unsteady"}


def machine_state(raw: Measured, softirq_ns: float | None) -> MachineState:
    """Return the machine's load, with shares of the CPUs and sentences derived from the load.

    softirq_ns: softirq work done for the run but charged to other tasks (side `other`), over the ledger
        segments
    """
    load = raw.machine_state
    cpus_ns = (load.wall_ns or 0) * (load.cpus or 0)
    others = others_ns(raw, load, softirq_ns)
    others_share = min(1.0, others / cpus_ns) if cpus_ns and others is not None else None
    steal_share = min(1.0, load.steal_ns / cpus_ns) if cpus_ns and load.steal_ns is not None else None
    spread_share, no_spread = spread(raw.run)
    siblings = siblings_share(load)
    disturbance = find_disturbance(raw, others_share, steal_share, spread_share, siblings)
    state = MachineState(
        **structs.asdict(load) | {"reasons": {}},
        others_ns=others,
        others_share=others_share,
        steal_share=steal_share,
        spread_share=spread_share,
        sentence=disturbance and disturbance.sentence,
        disturbance=disturbance and disturbance.kind,
        evidence=disturbance and disturbance.evidence,
        quota_sentence=describe_quota(load),
        siblings_share=siblings,
        clock_sentence=describe_clock(load),
    )
    load_reasons = {name: reason for name, reason in load.reasons.items() if name in structs.asdict(load)}
    default_reason = next(iter(load_reasons.values()), "no segment was measured")
    reasons = {
        "spread_share": no_spread,
        **dict.fromkeys(("disturbance", "evidence", "sentence"), QUIET),
        **dict.fromkeys(("clock_before", "clock_after"), CLOCK_UNREAD),
        **dict.fromkeys(("siblings", "siblings_ns", "siblings_share"), SIBLINGS_UNREAD),
        **dict.fromkeys(("quotas", "quota_sentence"), QUOTAS_UNREAD if load.quotas is None else NO_STOPS),
        "clock_sentence": "no disturbance is known" if load.clock_after else CLOCK_UNREAD,
        **load_reasons,
    }
    unknown = [name for name, value in structs.asdict(state).items() if value is None]
    state.reasons = {name: reasons.get(name) or default_reason for name in unknown}
    return state


def others_ns(raw: Measured, load: MachineLoad, softirq_ns: float | None) -> int | None:
    """Return the CPU time in ns that other programs took; None if it is unknown.

    load: readings of the machine's load
    softirq_ns: softirq work done for the run but charged to other tasks, over the ledger segments
    """
    if load.busy_ns is None or load.sides_ns is None or load.own_ns is None:
        return None
    run_ns = load.sides_ns + load.peers_ns + load.own_ns + _run_softirq_ns(raw, load, softirq_ns)
    return max(0, load.busy_ns - run_ns)


def _run_softirq_ns(raw: Measured, load: MachineLoad, softirq_ns: float | None) -> int:
    """Return the softirq work of the run that no CPU clock of a side includes, over all measured segments.

    load: readings of the machine's load
    softirq_ns: softirq work done for the run but charged to other tasks, over the ledger segments
    """
    all_softirq_ns = load.softirq_ns or 0
    if raw.machine.irq_time_accounting:
        return all_softirq_ns  # No process clock includes softirqs, so other programs' part is unknown.
    elapsed_ns = wall_ns(select(raw.run.segments, "ledger"))
    if not softirq_ns or not elapsed_ns:
        return 0
    return min(all_softirq_ns, round(int(softirq_ns) * (load.wall_ns or 0) / elapsed_ns))


def spread(run: RunSection) -> tuple[float | None, str | None]:
    """Return the standard deviation of goodput without instruments over its mean, or (None, reason)."""
    goodputs = [goodput_gbps([segment]) or 0.0 for segment in select(run.segments, "unprobed")]
    if len(goodputs) < SEGMENTS_MIN:
        return None, f"{len(goodputs)} segments without instruments: at least {SEGMENTS_MIN} are needed"
    mean = fmean(goodputs)
    if not mean:
        return None, "nothing was delivered in the segments without instruments"
    return stats.standard_deviation(goodputs) / mean, None


class Disturbance(NamedTuple):
    """A disturbance: its kind (BUSY, UNSTEADY, PEER), its evidence, and a sentence with the next step."""

    kind: str
    evidence: str
    sentence: str


def find_disturbance(
    raw: Measured,
    others_share: float | None,
    steal_share: float | None,
    spread_share: float | None,
    siblings: float | None,
) -> Disturbance | None:
    """Return what disturbed the run; None if the machine was quiet and the run was steady.

    others_share, steal_share: shares of the CPUs that other programs and the hypervisor took
    spread_share: relative standard deviation of goodput without instruments
    siblings: share of the hyper-thread siblings that other programs took
    """
    evidence = []
    if others_share is not None and others_share >= BUSY_SHARE:
        evidence.append(f"other programs used {others_share * 100:.0f} % of the CPUs")
    if steal_share is not None and steal_share >= STEAL_SHARE:
        evidence.append(f"the hypervisor took {steal_share * 100:.0f} % of the CPUs' time")
    if siblings is not None and siblings >= BUSY_SHARE:
        evidence.append(f"other programs used {siblings * 100:.0f} % of the hyper-thread siblings")
    # The goodput of a watched program may vary because the program's work varies.
    is_unsteady = spread_share is not None and spread_share >= SPREAD_SHARE and raw.target is None
    if not evidence and not is_unsteady:
        peer_sentence = describe_peers(raw.machine_state)
        return None if peer_sentence is None else Disturbance(PEER, peer_sentence, peer_sentence)
    kind = BUSY if evidence else UNSTEADY
    if spread_share is not None:
        evidence.append(f"goodput of segments varied by {spread_share * 100:.0f} %")
    text = "; ".join(evidence)
    advice = repeat_advice(duration_s(raw), busy=kind == BUSY)
    return Disturbance(kind, text, f"{OPENINGS[kind]}: {text}: {advice}")


def disturbance_kind(state: MachineState) -> str | None:
    """Return the kind of disturbance, or None if there was none.

    Old records lack the key `disturbance`, so the kind is parsed from their sentence.
    """
    if state.disturbance is not None or state.sentence is None:
        return state.disturbance
    return next((kind for kind, opening in OPENINGS.items() if state.sentence.startswith(opening)), PEER)


def describe_peers(load: MachineLoad) -> str | None:
    """Describe the load of peers on this machine, such as a load generator; None if it is small."""
    share = peers_share(load)
    return f"its peer on this machine took {share * 100:.0f} % of the CPUs" if share >= BUSY_SHARE else None


def peers_share(load: MachineLoad) -> float:
    """Return the share of the CPUs (0..1) that peers on this machine took."""
    cpus_ns = (load.wall_ns or 0) * (load.cpus or 0)
    return min(1.0, load.peers_ns / cpus_ns) if cpus_ns else 0.0


def repeat_advice(duration_s: float | None, *, busy: bool) -> str:
    """Return the advice to repeat a disturbed run, as the end of a sentence.

    duration_s: planned duration; None if no duration was planned
    busy: True if other programs disturbed the run
    """
    repeat = "repeat when idle" if busy else "repeat"
    return repeat if not duration_s else f"{repeat}, or --duration {duration_s * LONGER:g}"


# CPUs of both sides, and whether these CPUs disturb each other.

# Intel's PMU -> usual name of the cores that it counts on.
CORES = {"cpu_core": "P core", "cpu_atom": "E core", "cpu_lowpower": "LP-E core"}
# Maximum number of characters of a list of CPUs. A longer list is replaced by the number of CPUs.
LIST_MAX = 14


def placement(raw: Measured) -> PlacementSummary | None:
    """Return the CPUs of both sides with a sentence about them; None for a watched program."""
    if not raw.placement:
        return None
    sender_name = "sender (the relay)" if is_relay(raw.run) else "sender"
    sentence, caution = describe_placement(raw.placement.sender, raw.placement.receiver, sender_name)
    # No caution about sharing a CPU if the user asked for one CPU.
    caution = caution and raw.asked.placement != "same"
    return PlacementSummary(
        sender=raw.placement.sender, receiver=raw.placement.receiver, sentence=sentence, caution=caution
    )


def describe_placement(
    sender: Sequence[Pinned], receiver: Sequence[Pinned], sender_name: str = "sender"
) -> tuple[str, bool]:
    """Return a sentence about the CPUs of both sides, and True if they disturb each other.

    The CPUs do so if they share cores, or are of different kinds or NUMA nodes.

    sender, receiver: CPUs that each side is pinned to
    sender_name: name of the sender in the sentence
    """
    if not sender and not receiver:
        return f"{sender_name} and receiver on any CPU, as the scheduler chooses", False
    cpus = f"{sender_name} {_cpus(sender)}, receiver {_cpus(receiver)}"
    if {pinned.cpu for pinned in sender} & {pinned.cpu for pinned in receiver}:
        if sender == receiver:
            cpus = f"{sender_name} and receiver on {_cpus(sender)}"
        return f"{cpus}: they take turns", True
    both = [*sender, *receiver]
    cores = grouped(both, lambda pinned: pinned.core_cpus)
    if not sender or not receiver or None in cores:
        return cpus, False
    is_shared = bool({pinned.core_cpus for pinned in sender} & {pinned.core_cpus for pinned in receiver})
    if is_shared and len(cores) == 1:
        return f"{cpus}: hyper-threads of one core", True
    kinds = grouped((threads[0] for threads in cores.values()), lambda pinned: pinned.core_type)
    core_text = " and ".join(_counted(len(same_kind), _core_name(kind)) for kind, same_kind in kinds.items())
    if is_shared:
        return f"{cpus}: {core_text}, which they share", True
    if len(both) > len(cores):
        core_text = f"{len(both)} threads of {core_text}"
    # The reader transfers each line from the memory or cache of the other node.
    is_apart = {pinned.node for pinned in sender} != {pinned.node for pinned in receiver}
    return ", ".join([f"{cpus}: {core_text}", *_caches(both), *_nodes(both)]), len(kinds) > 1 or is_apart


def _cpus(side: Sequence[Pinned]) -> str:
    """Return the CPUs of a side as text: `CPU 2`, `CPUs 0-3,8`, or `16 CPUs` for a long list.

    side: CPUs that the side is pinned to; empty if it runs on any CPU
    """
    if not side:
        return "on any CPU"
    numbers = sorted(pinned.cpu for pinned in side)
    if len(numbers) == 1:
        return f"CPU {numbers[0]}"
    starts = [0, *(i for i, (a, b) in enumerate(pairwise(numbers), 1) if b != a + 1), len(numbers)]
    ranges = [(numbers[start], numbers[end - 1]) for start, end in pairwise(starts)]
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
    return f"CPUs {text}" if len(text) <= LIST_MAX else f"{len(numbers)} CPUs"


def _core_name(core_type: str | None) -> str:
    return "core" if core_type is None else CORES.get(core_type, f"core of {core_type}")


def _counted(count: int, name: str) -> str:
    """Return a number of cores as text: `an E core`, `two P cores`, `8 cores of capacity 1024`."""
    if count == 1:
        return f"{'an' if name[:2] in ('E ', 'LP') else 'a'} {name}"
    return f"{_number(count)} {name.replace('core', 'cores', 1)}"


def _caches(both: Sequence[Pinned]) -> list[str]:
    """Return the number of last-level caches as text; empty if they are unknown."""
    caches = {(pinned.llc_level, pinned.llc_cpus) for pinned in both}
    if any(None in cache for cache in caches):
        return []
    levels = {level for level, _ in caches}
    name = f"L{levels.pop()}" if len(levels) == 1 else "last-level cache"
    return [f"one {name}" if len(caches) == 1 else f"{_number(len(caches))} {name}s"]


def _nodes(both: Sequence[Pinned]) -> list[str]:
    """Return the number of NUMA nodes as text; empty for a single node.

    Nodes that share a last-level cache are parts of one processor: sub-NUMA clustering (SNC), or NPS of AMD.
    """
    nodes, caches = ({getattr(pinned, fact) for pinned in both} for fact in ("node", "llc_cpus"))
    kind = "sub-NUMA clusters" if len(caches) == 1 and None not in caches else "NUMA nodes"
    return [f"{_number(len(nodes))} {kind}"] if len(nodes) > 1 else []


def _number(count: int) -> str:
    return "two" if count == 2 else str(count)


# The observer effect: goodput with instruments over goodput without instruments, paired by block.
#
# Pairing cancels drift, because both phases of a block ran within the same second. The control for function
# hooks consists of segments in which the hooks are attached and do nothing. So the cost of attached idle
# hooks is not included. For a watched program all segments, and the bytes that moved while hooks were
# attached or detached, are compared with the segments that only count bytes.

# Minimum number of pairs of segments that give an interval.
PAIRS_MIN = 3
# Minimum relative effect on goodput that matters. An interval that contains both 0 and this effect is
# inconclusive.
MATTERING_EFFECT = 0.10
NOISY = "too noisy to tell"
PHASES = ("ledger", "calls")
PENDING = "known when the run has ended"
# Placeholder for a run that has not ended.
OVERHEAD_PENDING = Overhead(
    PENDING, None, None, None, None, {}, {}, Watching(PENDING, None, None, None, None, effect=None, pairs=0)
)


def overhead(raw: Measured) -> Overhead:
    """Return the cost of the instruments: `phases` has that of each phase, the other keys the ledger's."""
    has_functions = bool(select(raw.run.segments, "functions"))
    phases = {
        phase: phase_effect(raw, phase) for phase in (*PHASES, *(("functions",) if has_functions else ()))
    }
    ledger = phases["ledger"]
    return Overhead(
        reason=ledger.reason,
        ratio=ledger.ratio,
        low=ledger.low,
        high=ledger.high,
        level=ledger.level,
        segments=ledger.segments,
        phases=phases,
        watching=None if raw.target is None else cost_of_watching(raw),
    )


def phase_effect(raw: Measured, phase: str) -> PhaseEffect:
    """Return a phase's goodput divided by its control's; values are None for fewer than PAIRS_MIN pairs."""
    control = control_of(raw.run, phase)
    segments = {name: len(comparable(raw.run.segments, name)) for name in (control, phase)}
    return _effect(raw, partial(PhaseEffect, segments=segments), block_pairs(raw.run, phase), segments)


def _effect(
    raw: Measured,
    make: Callable[..., Effect],
    pairs: Sequence[tuple[float, float]],
    segments: Mapping[str, int],
) -> Effect:
    """Return the ratio of goodputs over pairs of blocks; values are None for fewer than PAIRS_MIN pairs.

    make: constructor of the result, which accepts the keys of Watching
    segments: as in why_no_ratio()
    """
    if len(pairs) < PAIRS_MIN:
        reason = why_no_ratio(raw, len(pairs), segments)
        return make(reason=reason, ratio=None, low=None, high=None, level=None, effect=None, pairs=len(pairs))
    ratio = stats.ratio_of(pairs)
    return make(
        reason=None,
        ratio=ratio.value,
        low=ratio.low,
        high=ratio.high,
        level=ratio.level,
        effect=1 - ratio.value,
        pairs=len(pairs),
    )


def control_of(run: RunSection, phase: str) -> str:
    """Return the phase that serves as the control of a phase."""
    return "unarmed" if phase == "functions" and select(run.segments, "unarmed") else "unprobed"


def describe_effect(low: float, high: float) -> str:
    """Return what the interval of a goodput ratio shows: an effect, no effect that matters, or NOISY."""
    if not low <= 1 <= high:
        return "effect seen"
    return "no effect found" if low >= 1 - MATTERING_EFFECT and high <= 1 + MATTERING_EFFECT else NOISY


def block_pairs(run: RunSection, phase: str) -> list[tuple[float, float]]:
    """Return (goodput of the phase, goodput of its control) in Gbit/s for each block with both above zero."""
    probed_segments = comparable(run.segments, phase)
    control_segments = comparable(run.segments, control_of(run, phase))
    pairs = []
    for block in sorted({s.block for s in probed_segments} & {s.block for s in control_segments}):
        probed, control = (
            goodput_gbps([s for s in segments if s.block == block])
            for segments in (probed_segments, control_segments)
        )
        if probed and control:
            pairs.append((probed, control))
    return pairs


def cost_of_watching(raw: Measured) -> Watching:
    """Return the section `overhead.watching`; values are None for fewer than PAIRS_MIN pairs."""
    control = len(comparable(raw.run.segments, "unprobed"))
    segments = {"unprobed": control, "others": len(raw.run.segments) - control}
    return _effect(raw, Watching, watched_pairs(raw), segments)


def watched_pairs(raw: Measured) -> list[tuple[float, float]]:
    """Return (goodput of all segments, goodput of byte-counting segments) for each block with both."""
    segments = raw.run.segments
    # If bytes were mapped or spliced, the time between segments is left out, because such bytes are counted
    # only inside segments.
    counts_changes = not any(row.syscall in WITHOUT_RECEIVE_CALL for row in raw.volume)
    control_segments = grouped(comparable(segments, "unprobed"), lambda segment: segment.block)
    pairs = []
    for block, block_segments in grouped(segments, lambda segment: segment.block).items():
        control = goodput_gbps(control_segments.get(block, []))
        watched = goodput_with_changes(block_segments) if counts_changes else goodput_gbps(block_segments)
        if watched and control and len(block_segments) > len(control_segments[block]):
            pairs.append((watched, control))
    return pairs


def goodput_with_changes(segments: Sequence[Segment]) -> float | None:
    """Return goodput in Gbit/s, including the time spent attaching and detaching hooks."""
    moved_bytes = elapsed_ns = 0
    for segment in segments:
        target = segment.target
        moved_bytes += target.bytes + target.edge_sent_bytes + target.edge_received_bytes
        elapsed_ns += segment.end_ns - segment.begin_ns + target.edge_ns
    return moved_bytes * 8 / elapsed_ns if elapsed_ns > 0 else None


def why_no_ratio(raw: Measured, pairs: int, segments: Mapping[str, int]) -> str:
    """Return why goodput with and without instruments was not compared.

    pairs: number of pairs of segments
    segments: phase -> number of segments, for the phase and its control
    """
    if not all(segments.get(phase, 1) for phase in ("unprobed", "unarmed")):
        if raw.workload is not None and raw.workload.messages is not None:
            return "a fixed number of messages runs in one segment, without a control"
        return "no segment ran without instruments: there is no control"
    if 0 in segments.values():
        return "this run has no segment of this phase"
    if not delivered_bytes(raw.run.segments):
        return "nothing was sent: goodput cannot be compared"
    return f"{pairs} pairs of segments: at least {PAIRS_MIN} are needed for an interval: run longer"

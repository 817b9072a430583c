"""How busy, how steady and how fast the machine was, where the sides ran, and whether it matters. Pure.

CPU time of others is what the CPUs that the sides may use spent (/proc/stat) less what the sides, copyscope
itself and the softirq work beside them took, from the beginning of the first measured segment to the end of
the last. /proc/stat counts in ticks of 10 ms: good for shares of seconds, not for less.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from statistics import fmean

from msgspec import structs

from copyscope import stats
from copyscope.grouping import grouped
from copyscope.record.derived import MachineState, Placed
from copyscope.record.measured import Measured, Pinned, Run
from copyscope.record.sections import ClockState, MachineLoad
from copyscope.record.segments import duration_s, goodput_gbps, relays, select, wall_ns

# Above these it is said: others' share of these CPUs, the hypervisor's, and the standard deviation of goodput
# without instruments over its mean. Of 594 runs on a quiet machine 3 % varied by more.
BUSY_SHARE = 0.10
STEAL_SHARE = 0.02
SPREAD_SHARE = 0.15
FEWEST_SEGMENTS = 3
QUIET = "other programs took little, and segments were alike"
NOT_READ = "the clock's settings were not read"
LONGER = 4
# What disturbed a run, and how the sentence about it begins; a load generator is part of the load.
BUSY, UNSTEADY, PEER = "busy", "unsteady", "peer"
OPENINGS = {BUSY: "machine busy", UNSTEADY: "unsteady"}


def machine_state(raw: Measured, beside_ns: float | None) -> MachineState:
    """What was read, the shares that follow, and a sentence where they matter.

    beside_ns: of the side `other` of the ledger.
    """
    read = raw.machine_state
    found = structs.asdict(read)
    found["others_ns"] = others_ns(raw, read, beside_ns)
    cpus_ns = (read.wall_ns or 0) * (read.cpus or 0)
    for key in ("others", "steal"):
        spent = found[f"{key}_ns"]
        found[f"{key}_share"] = min(1.0, spent / cpus_ns) if cpus_ns and spent is not None else None
    found["spread_share"], unsteady = spread(raw.run)
    shares = (found["others_share"], found["steal_share"], found["spread_share"])
    found |= disturbance(raw, read, *shares)
    found["clock_sentence"] = clock_sentence(read)
    reasons = {key: why for key, why in read.reasons.items() if key in structs.asdict(read)}
    why = next(iter(reasons.values()), "no segment was measured")
    named = {
        "spread_share": unsteady,
        **dict.fromkeys(("disturbance", "evidence", "sentence"), QUIET),
        **dict.fromkeys(("clock_before", "clock_after"), NOT_READ),
        "clock_sentence": "no disturbance is known" if read.clock_after else NOT_READ,
        **reasons,
    }
    owed = {key: named.get(key) or why for key, value in found.items() if value is None}
    return MachineState(**found | {"reasons": owed})


def others_ns(raw: Measured, read: MachineLoad, beside_ns: float | None) -> int | None:
    """CPU time that neither the sides, their peers nor copyscope took, nor softirq work that is the run's."""
    if read.busy_ns is None or read.sides_ns is None or read.own_ns is None:
        return None
    ours = read.sides_ns + read.peers_ns + read.own_ns + _softirq_beside_ns(raw, read, beside_ns)
    return max(0, read.busy_ns - ours)


def _softirq_beside_ns(raw: Measured, read: MachineLoad, beside_ns: float | None) -> int:
    """Softirq work outside of the sides' clocks, as far as it is ours: the side `other` of the ledger."""
    softirq_ns = read.softirq_ns or 0
    if raw.machine.irq_time_accounting:
        return softirq_ns  # no clock of a process has it: what of it is others' is not known
    elapsed_ns = wall_ns(select(raw.run.segments, "ledger"))
    if not beside_ns or not elapsed_ns:
        return 0
    return min(softirq_ns, round(int(beside_ns) * (read.wall_ns or 0) / elapsed_ns))


def spread(run: Run) -> tuple[float | None, str | None]:
    """Standard deviation of the goodput of the segments without instruments, over its mean; or None, why."""
    goodputs = [goodput_gbps([segment]) or 0.0 for segment in select(run.segments, "unprobed")]
    if len(goodputs) < FEWEST_SEGMENTS:
        return None, f"{len(goodputs)} segments without instruments: at least {FEWEST_SEGMENTS} are needed"
    mean = fmean(goodputs)
    if not mean:
        return None, "nothing was delivered in the segments without instruments"
    return stats.deviation(goodputs) / mean, None


def disturbance(
    raw: Measured, read: MachineLoad, others: float | None, steal: float | None, varied: float | None
) -> dict[str, str | None]:
    """What is said near the top of the screen; nulls where the machine was quiet and the run steady."""
    taken = []
    if others is not None and others >= BUSY_SHARE:
        taken.append(f"others took {others * 100:.0f} % of the CPUs")
    if steal is not None and steal >= STEAL_SHARE:
        taken.append(f"the hypervisor took {steal * 100:.0f} % of their time")
    # How a program that is watched varies is its own affair.
    unsteady = varied is not None and varied >= SPREAD_SHARE and raw.target is None
    if not taken and not unsteady:
        said = of_peers(read)
        return {"disturbance": said and PEER, "evidence": said, "sentence": said}
    kind = BUSY if taken else UNSTEADY
    if varied is not None:
        taken.append(f"segments varied by {varied * 100:.0f} %")
    evidence = "; ".join(taken)
    again = remedy(duration_s(raw), busy=kind == BUSY)
    whole = f"{OPENINGS[kind]}: {evidence}: {again}"
    return {"disturbance": kind, "evidence": evidence, "sentence": whole}


def disturbance_of(state: MachineState) -> str | None:
    """Its kind; records of before it was a key say it only by how their sentence begins."""
    if state.disturbance is not None or state.sentence is None:
        return state.disturbance
    return next((kind for kind, words in OPENINGS.items() if state.sentence.startswith(words)), PEER)


def of_peers(read: MachineLoad) -> str | None:
    """What a load generator on this machine took: it is part of the load, and no disturbance."""
    share = peers_share(read)
    return f"its peer on this machine took {share * 100:.0f} % of the CPUs" if share >= BUSY_SHARE else None


def peers_share(read: MachineLoad) -> float:
    cpus_ns = (read.wall_ns or 0) * (read.cpus or 0)
    return min(1.0, read.peers_ns / cpus_ns) if cpus_ns else 0.0


def remedy(duration_s: float | None, *, busy: bool) -> str:
    """What to do next, as the end of a sentence."""
    again = "repeat when idle" if busy else "repeat"
    return again if not duration_s else f"{again}, or --duration {duration_s * LONGER:g}"


# Key of a state -> what it is called; one that changed was changed by somebody.
SETTINGS = {
    "governor": "governor",
    "turbo": "turbo",
    "energy_preference": "energy preference",
    "platform_profile": "platform profile",
}
WORDS = {True: "on", False: "off"}


def clock_sentence(read: MachineLoad) -> str | None:
    """The one caution of it; None where the clock was left alone, or nobody looked."""
    before, after = read.clock_before, read.clock_after
    if not before or not after:
        return None
    heat = (after.throttles or 0) - (before.throttles or 0)
    slowed = [f"heat slowed it down {'once' if heat == 1 else f'{heat} times'}"] if heat > 0 else []
    battery = ["on battery"] if before.on_battery or after.on_battery else []
    found = [*_changed(before, after), *slowed, *battery]
    if not found:
        return None
    again = " on mains power" if battery else " when it is cool" if slowed else ""
    return f"clock: {', '.join(found)}: repeat{again}"


def _changed(before: ClockState, after: ClockState) -> Iterator[str]:
    for key, name in SETTINGS.items():
        old, new = getattr(before, key), getattr(after, key)
        if old != new and None not in (old, new):
            yield f"{name} changed from {WORDS.get(old, old)} to {WORDS.get(new, new)}"


# What people call the cores of Intel's PMUs.
CORES = {"cpu_core": "P core", "cpu_atom": "E core", "cpu_lowpower": "LP-E core"}
# Longer lists are said as a number.
LIST_MAX = 14


def placed(raw: Measured) -> Placed | None:
    """What was recorded, and the sentence that the screen says of it; None of a watched program."""
    if not raw.placement:
        return None
    name = "sender (the relay)" if relays(raw.run) else "sender"
    text, caution = in_common(raw.placement.sender, raw.placement.receiver, name)
    # Who asks for one CPU has asked for it.
    asked = raw.asked.placement == "same"
    return Placed(**structs.asdict(raw.placement), sentence=text, caution=caution and not asked)


def in_common(sender: Sequence[Pinned], receiver: Sequence[Pinned], name: str = "sender") -> tuple[str, bool]:
    """What the CPUs of both sides have in common; True: they disturb each other, or are not alike."""
    if not sender and not receiver:
        return f"{name} and receiver on any CPU, as the scheduler chooses", False
    whose = f"{name} {_cpus(sender)}, receiver {_cpus(receiver)}"
    theirs = {one.cpu for one in receiver}
    if any(one.cpu in theirs for one in sender):
        if sender == receiver:
            whose = f"{name} and receiver on {_cpus(sender)}"
        return f"{whose}: they take turns", True
    both = [*sender, *receiver]
    cores = grouped(both, lambda one: one.core_cpus)
    if not sender or not receiver or None in cores:
        return whose, False
    kinds = grouped((some[0] for some in cores.values()), lambda one: one.core_type)
    shares = any(one.core_cpus in {other.core_cpus for other in receiver} for one in sender)
    if shares and len(cores) == 1:
        return f"{whose}: hyper-threads of one core", True
    what = _and([_counted(len(some), _called(kind)) for kind, some in kinds.items()])
    if shares:
        return f"{whose}: {what}, which they share", True
    if len(both) > len(cores):
        what = f"{len(both)} threads of {what}"
    return ", ".join([f"{whose}: {what}", *_caches(both), *_nodes(both)]), len(kinds) > 1


def _cpus(side: Sequence[Pinned]) -> str:
    """`CPU 2`, `CPUs 0-3,8`, `16 CPUs`."""
    if not side:
        return "on any CPU"
    numbers = sorted(one.cpu for one in side)
    if len(numbers) == 1:
        return f"CPU {numbers[0]}"
    starts = [0, *(at for at, (a, b) in enumerate(pairwise(numbers), 1) if b != a + 1), len(numbers)]
    spans = [(numbers[a], numbers[b - 1]) for a, b in pairwise(starts)]
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"CPUs {text}" if len(text) <= LIST_MAX else f"{len(numbers)} CPUs"


def _called(core_type: str | None) -> str:
    return "core" if core_type is None else CORES.get(core_type, f"core of {core_type}")


def _counted(count: int, name: str) -> str:
    """`an E core`, `two P cores`, `8 cores of capacity 1024`."""
    if count == 1:
        return f"{'an' if name[:2] in ('E ', 'LP') else 'a'} {name}"
    return f"{_number(count)} {name.replace('core', 'cores', 1)}"


def _caches(both: Sequence[Pinned]) -> list[str]:
    caches = {(one.llc_level, one.llc_cpus) for one in both}
    if any(None in one for one in caches):
        return []
    levels = {level for level, _ in caches}
    name = f"L{levels.pop()}" if len(levels) == 1 else "last-level cache"
    return [f"one {name}" if len(caches) == 1 else f"{_number(len(caches))} {name}s"]


def _nodes(both: Sequence[Pinned]) -> list[str]:
    nodes = {one.node for one in both}
    return [f"{_number(len(nodes))} NUMA nodes"] if len(nodes) > 1 else []


def _number(count: int) -> str:
    return "two" if count == 2 else str(count)


def _and(parts: Collection[str]) -> str:
    return " and ".join(parts)

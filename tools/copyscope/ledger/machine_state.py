"""How busy and how steady the machine was while a run was measured, and whether that matters. Pure.

CPU time of others is what the CPUs that the sides may use spent (/proc/stat) less what the sides, copyscope
itself and the softirq work beside them took, from the beginning of the first measured segment to the end of
the last. /proc/stat counts in ticks of 10 ms: good for shares of seconds, not for less.
"""

from statistics import fmean

from msgspec import structs

from copyscope import stats
from copyscope.ledger.clock import clock_sentence
from copyscope.record.derived import MachineState
from copyscope.record.machine_load import unread
from copyscope.record.measured import Measured, Run
from copyscope.record.sections import MachineLoad
from copyscope.record.segments import duration_s, goodput_gbps, select, wall_ns

# Above these it is said: others' share of these CPUs, the hypervisor's, and the standard deviation of goodput
# without instruments over its mean. Of 594 runs on a quiet machine 3 % varied by more.
BUSY_SHARE = 0.10
STEAL_SHARE = 0.02
SPREAD_SHARE = 0.15
FEWEST_SEGMENTS = 3
NOT_READ = "the clock's settings were not read"
LONGER = 4


def machine_state(raw: Measured, beside_ns: float | None) -> MachineState:
    """What was read, the shares that follow, and a sentence where they matter.

    beside_ns: of the side `other` of the ledger.
    """
    read = raw.machine_state or MachineLoad(**unread("this record is older than the measurement"))
    # The first records with this section do not have all of its keys.
    found = structs.asdict(read) | {"cpus": read.cpus or None}
    found["others_ns"] = others_ns(raw, read, beside_ns)
    cpus_ns = (read.wall_ns or 0) * (read.cpus or 0)
    for key in ("others", "steal"):
        spent = found[f"{key}_ns"]
        found[f"{key}_share"] = min(1.0, spent / cpus_ns) if cpus_ns and spent is not None else None
    found["spread_share"], unsteady = spread(raw.run)
    found["sentence"] = sentence(raw, found["others_share"], found["steal_share"], found["spread_share"])
    found["clock_sentence"] = clock_sentence(read)
    reasons = {key: why for key, why in read.reasons.items() if key in structs.asdict(read)}
    why = next(iter(reasons.values()), "no segment was measured")
    named = {
        "spread_share": unsteady,
        "sentence": "nobody else took much, and segments were alike",
        **dict.fromkeys(("clock_before", "clock_after"), NOT_READ),
        "clock_sentence": "it was left alone, as far as is known" if read.clock_after else NOT_READ,
        **reasons,
    }
    owed = {key: named.get(key) or why for key, value in found.items() if value is None}
    return MachineState(**found | {"reasons": owed})


def others_ns(raw: Measured, read: MachineLoad, beside_ns: float | None) -> int | None:
    """CPU time that neither the sides took, nor copyscope, nor the softirq work that is the run's own."""
    if read.busy_ns is None or read.sides_ns is None or read.own_ns is None:
        return None
    ours = read.sides_ns + read.own_ns + _softirq_beside_ns(raw, read, beside_ns)
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


def sentence(raw: Measured, others: float | None, steal: float | None, varied: float | None) -> str | None:
    """What is said near the top of the screen; None where the machine was quiet and the run steady."""
    taken = []
    if others is not None and others >= BUSY_SHARE:
        taken.append(f"others took {others * 100:.0f} % of the CPUs")
    if steal is not None and steal >= STEAL_SHARE:
        taken.append(f"the hypervisor took {steal * 100:.0f} % of their time")
    # How a program that is watched varies is its own affair.
    unsteady = varied is not None and varied >= SPREAD_SHARE and raw.target is None
    if not taken and not unsteady:
        return None
    opening = "machine busy" if taken else "unsteady"
    if varied is not None:
        taken.append(f"segments varied by {varied * 100:.0f} %")
    again = remedy(duration_s(raw), busy=opening == "machine busy")
    return f"{opening}: {'; '.join(taken)}: {again}"


def remedy(duration_s: float | None, *, busy: bool) -> str:
    """What to do next, as the end of a sentence."""
    again = "repeat when idle" if busy else "repeat"
    return again if not duration_s else f"{again}, or --duration {duration_s * LONGER:g}"

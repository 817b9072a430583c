"""How busy and how steady the machine was while a run was measured, and whether that matters. Pure.

CPU time of others is what the CPUs that the sides may use spent (/proc/stat) less what the sides, copyscope
itself and the softirq work beside them took, from the beginning of the first measured segment to the end of
the last. /proc/stat counts in ticks of 10 ms: good for shares of seconds, not for less.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from copyscope import stats
from copyscope.record.machine_load import unread
from copyscope.record.segments import Record, goodput_gbps, select, wall_ns, watched

# Above these it is said: others' share of these CPUs, the hypervisor's, and the standard deviation of goodput
# without instruments over its mean. Of 594 runs on a quiet machine 3 % varied by more.
BUSY_SHARE = 0.10
STEAL_SHARE = 0.02
SPREAD_SHARE = 0.15
FEWEST_SEGMENTS = 3
LONGER = 4


def machine_state(record: Record, sides: Mapping[str, Any]) -> Record:
    """The section machine_state: what was read, the shares that follow, and a sentence where they matter."""
    empty = unread("this record is older than the measurement")
    raw = record.get("machine_state") or empty
    # The first records with this section do not have all of its keys.
    section: Record = {key: raw.get(key) for key in empty if key != "reasons"}
    section["others_ns"] = others_ns(record, section, sides["other"]["cpu_ns"])
    reasons = {key: why for key, why in raw["reasons"].items() if key in section}
    cpus_ns = (section["wall_ns"] or 0) * (section["cpus"] or 0)
    for key in ("others", "steal"):
        spent = section[f"{key}_ns"]
        section[f"{key}_share"] = min(1.0, spent / cpus_ns) if cpus_ns and spent is not None else None
    section["spread_share"], unsteady = spread(record)
    section["sentence"] = sentence(record, section)
    why = next(iter(reasons.values()), "no segment was measured")
    owed = dict.fromkeys((key for key, value in section.items() if value is None), why)
    named = {
        "spread_share": unsteady,
        "sentence": "nobody else took much, and segments were alike",
        **reasons,
    }
    section["reasons"] = owed | {key: named[key] for key in owed if named.get(key)}
    return section


def others_ns(record: Record, section: Mapping[str, Any], beside_ns: float | None) -> int | None:
    """CPU time that neither the sides took, nor copyscope, nor the softirq work that is the run's own."""
    if section["busy_ns"] is None or section["sides_ns"] is None:
        return None
    ours = section["sides_ns"] + section["own_ns"] + _softirq_beside_ns(record, section, beside_ns)
    return max(0, int(section["busy_ns"] - ours))


def _softirq_beside_ns(record: Record, section: Mapping[str, Any], beside_ns: float | None) -> int:
    """Softirq work outside of the sides' clocks, as far as it is ours: the side `other` of the ledger."""
    softirq_ns = int(section["softirq_ns"])
    if record["machine"].get("irq_time_accounting"):
        return softirq_ns  # no clock of a process has it: what of it is others' is not known
    elapsed_ns = wall_ns(select(record, "ledger"))
    if not beside_ns or not elapsed_ns:
        return 0
    return min(softirq_ns, round(int(beside_ns) * int(section["wall_ns"]) / elapsed_ns))


def spread(record: Record) -> tuple[float | None, str | None]:
    """Standard deviation of the goodput of the segments without instruments, over its mean; or None, why."""
    goodputs = [goodput_gbps([segment]) or 0.0 for segment in select(record, "unprobed")]
    if len(goodputs) < FEWEST_SEGMENTS:
        return None, f"{len(goodputs)} segments without instruments: at least {FEWEST_SEGMENTS} are needed"
    mean = fmean(goodputs)
    if not mean:
        return None, "nothing was delivered in the segments without instruments"
    return stats.deviation(goodputs) / mean, None


def sentence(record: Record, section: Mapping[str, Any]) -> str | None:
    """What is said near the top of the screen; None where the machine was quiet and the run steady."""
    others, steal, varied = (section[key] for key in ("others_share", "steal_share", "spread_share"))
    taken = []
    if others is not None and others >= BUSY_SHARE:
        taken.append(f"others took {others * 100:.0f} % of the CPUs")
    if steal is not None and steal >= STEAL_SHARE:
        taken.append(f"the hypervisor took {steal * 100:.0f} % of their time")
    # How a program that is watched varies is its own affair.
    unsteady = varied is not None and varied >= SPREAD_SHARE and not watched(record)
    if not taken and not unsteady:
        return None
    opening = "machine busy" if taken else "unsteady"
    if varied is not None:
        taken.append(f"segments varied by {varied * 100:.0f} %")
    return f"{opening}: {'; '.join(taken)}: {remedy(record, busy=opening == 'machine busy')}"


def remedy(record: Record, *, busy: bool) -> str:
    """What to do next, as the end of a sentence."""
    duration_s = record["workload"]["duration_s"]
    again = "repeat when idle" if busy else "repeat"
    return again if not duration_s else f"{again}, or --duration {duration_s * LONGER:g}"

# SPDX-License-Identifier: GPL-2.0-only
"""Noise of runs: disturbances in a few words, and how much the cost differs between segments. Pure."""

from collections import Counter
from collections.abc import Sequence

from copyscope.base import stats
from copyscope.base.spelling import counted
from copyscope.ledger.machine_state import BUSY, PEER, UNSTEADY, disturbance_kind, peers_share
from copyscope.record.derived import MachineState
from copyscope.record.measured import Measured
from copyscope.record.run import Run
from copyscope.record.segments import cpu_ns_per_byte, select


def load_text(state: MachineState) -> str:
    """Return a short text on the disturbance of a run, such as `other programs used 92 % of the CPUs`."""
    kind = disturbance_kind(state)
    if kind is None:
        return "machine quiet"
    if kind == PEER:
        return f"its peer used {peers_share(state) * 100:.0f} % of the CPUs"
    if kind == UNSTEADY:
        return f"goodput varied {(state.spread_share or 0.0) * 100:.0f} %"
    return _used_text([state])


def _used_text(states: Sequence[MachineState], used: str = "used") -> str:
    """Return the largest share that other programs took of CPUs, or of hyper-thread siblings if larger."""
    taken_share = max(map(_taken_share, states))
    siblings_share = max(state.siblings_share or 0.0 for state in states)
    if siblings_share > taken_share:
        return f"other programs {used} {siblings_share * 100:.0f} % of the hyper-thread siblings"
    return f"other programs {used} {taken_share * 100:.0f} % of the CPUs"


def _taken_share(state: MachineState) -> float:
    """Return the share of the CPUs (0..1) that other programs and the hypervisor took."""
    return (state.others_share or 0.0) + (state.steal_share or 0.0)


def beside_goodput(state: MachineState) -> str:
    """Return words to append to a goodput: ` on a busy machine (other ...)`, or "" if undisturbed.

    A peer on this machine is part of a watched program's workload, so it is not a disturbance.
    """
    opening = {BUSY: "on a busy machine", UNSTEADY: "unsteady"}.get(disturbance_kind(state) or "")
    return f" {opening} ({load_text(state)})" if opening else ""


def of_runs(runs: Sequence[Run]) -> str:
    """Return the disturbances of some runs in words, such as `3 of 40 runs on a busy machine (...)`."""
    states = [run.derived.machine_state for run in runs]
    kinds = Counter(disturbance_kind(state) for state in states)
    texts = []
    if kinds[BUSY]:
        used = _used_text([state for state in states if disturbance_kind(state) == BUSY], "used up to")
        texts.append(f"{kinds[BUSY]} of {counted(len(runs), 'run')} on a busy machine ({used})")
    if kinds[UNSTEADY]:
        texts.append(f"{kinds[UNSTEADY]} of {counted(len(runs), 'run')} unsteady")
    return ", ".join(texts)


def relative_half_width(raw: Measured) -> float | None:
    """Return half of the 95 % interval of the CPU time per byte, relative to the mean over the segments.

    Student's t interval of the mean over the ledger segments shows the noise of the machine, not of the
    samples. The CPU time comes from the processes' clocks. Return None if fewer than two segments moved
    bytes.
    """
    costs = cpu_ns_per_byte(select(raw.run.segments, "ledger"))
    half, mean = stats.mean_half_width(costs), sum(costs) / len(costs) if costs else 0.0
    return None if half is None or not mean else half / mean

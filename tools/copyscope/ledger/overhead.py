"""The observer effect: goodput with instruments on over goodput with them off, paired by block.

Pairing takes drift out: the two arms of a block ran within the same second. Function hooks are compared with
themselves while they do nothing; what that costs is in neither.
"""

from typing import Any

from copyscope import stats
from copyscope.record.derived import ArmEffect, Overhead
from copyscope.record.raw import Measured, RunBase
from copyscope.record.segments import comparable, delivered_bytes, goodput_gbps, select

FEWEST_PAIRS = 3
# An effect on goodput that matters. An interval that holds no effect and one of this size tells nothing.
MATTERS = 0.10
NOISY = "too noisy to tell"
ARMS = ("ledger", "calls")
NOT_WORKED_OUT_YET = "not worked out while the run goes on"
# The columns of a ratio that is not known.
UNKNOWN: dict[str, Any] = dict.fromkeys(("ratio", "low", "high", "level", "effect"))


def overhead(raw: Measured) -> Overhead:
    """The overhead section: the ledger arm at the top (its goodput is the probed one), every arm below."""
    hooked = bool(select(raw.run.segments, "functions"))
    arms = {arm: arm_effect(raw, arm) for arm in (*ARMS, *(("functions",) if hooked else ()))}
    ledger = arms["ledger"]
    return Overhead(ledger.reason, ledger.ratio, ledger.low, ledger.high, ledger.level, ledger.segments, arms)


def arm_effect(raw: Measured, arm: str) -> ArmEffect:
    """Ratio of an arm to its control, with interval; `effect` is the loss (1 - ratio). Null below 3 pairs."""
    without = control_of(raw.run, arm)
    control = comparable(raw.run.segments, without)
    probed = comparable(raw.run.segments, arm)
    counts = {without: len(control), arm: len(probed)}
    pairs = block_pairs(raw.run, arm)
    reason, columns = None, UNKNOWN
    if len(pairs) < FEWEST_PAIRS:
        reason = why_unpaired(raw, len(pairs), counts)
    else:
        ratio = stats.paired_ratio(pairs, seed=raw.run.seed)
        columns = loss_of(ratio.value, ratio.interval)
    return ArmEffect(reason=reason, pairs=len(pairs), segments=counts, **columns)


def control_of(run: RunBase, arm: str) -> str:
    """The arm that is the other half of each pair; of older records it is the same for all."""
    return "unarmed" if arm == "functions" and select(run.segments, "unarmed") else "unprobed"


def loss_of(ratio: float, interval: stats.Interval) -> dict[str, Any]:
    """The columns of a ratio of goodput that is known; `effect` is the loss."""
    return {"ratio": ratio, **vars(interval), "effect": 1 - ratio}


def found(low: float, high: float) -> str:
    """What an interval of a ratio says: an effect, none that matters, or that the run was too noisy."""
    if not low <= 1 <= high:
        return "effect seen"
    return "no effect found" if low >= 1 - MATTERS and high <= 1 + MATTERS else NOISY


def block_pairs(run: RunBase, arm: str) -> list[tuple[float, float]]:
    """(goodput of the arm, goodput of its control) in Gbit/s for each block that has both, above zero."""
    control, probed = comparable(run.segments, control_of(run, arm)), comparable(run.segments, arm)
    pairs = []
    for block in sorted({s.block for s in probed} & {s.block for s in control}):
        with_it, without = (goodput_gbps([s for s in rows if s.block == block]) for rows in (probed, control))
        if with_it and without:
            pairs.append((with_it, without))
    return pairs


def why_unpaired(raw: Measured, pairs: int, counts: dict[str, int]) -> str:
    if not all(counts.get(arm, 1) for arm in ("unprobed", "unarmed")):
        if raw.workload.messages is not None:
            return "a fixed number of messages runs in one segment, without a control"
        return "no segment ran without instruments: there is no control"
    if 0 in counts.values():
        return "no segment of this arm in this run"
    if not delivered_bytes(raw.run.segments):
        return "nothing was sent: goodput cannot be compared"
    return f"{pairs} pairs of segments: at least {FEWEST_PAIRS} are needed for an interval: run longer"

"""Is a point steady enough to be believed, and would more repeats help? Pure.

Judged is the coefficient of variation (standard deviation / mean) of the goodput without instruments over the
repeats: it says how noisy the machine is, whatever their number. More repeats do not lower it; they
narrow the interval of the median, so they are asked for only while that one is wide.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any

from copyscope import stats
from copyscope.grouping import grouped
from copyscope.ledger.machine_state import BUSY_SHARE

VARIATION_LIMIT = 0.05
STEAL_LIMIT_PERCENT = 2.0
# What other programs may take of all CPUs.
OTHERS_LIMIT = BUSY_SHARE
# Half of the 95 % interval of the median goodput, relative to it.
WIDTH_LIMIT = 0.05
# A point that is not steady by then is not going to be.
MOST_REPEATS = 15


@dataclass(frozen=True)
class Sample:
    """What this needs of a record."""

    factors: Mapping[str, Any]
    repeat: int
    goodput_gbps: float | None
    steal_percent: float | None
    valid: bool
    others_share: float | None = None


@dataclass(frozen=True)
class Unsteady:
    """A point that is over a limit."""

    factors: Mapping[str, Any]
    reason: str
    wants_more: bool


def sample(record: Mapping[str, Any]) -> Sample:
    """From a record of a sweep. A run of a fixed number of messages has no segment without instruments."""
    run = record["run"]
    if "simulated" in record:
        # No time is in it: nothing of this machine disturbs what it counts.
        return Sample(run["factors"] or {}, run["repeat"], None, None, record["verdict"]["valid"])
    goodput = record["throughput_gbps"]
    return Sample(
        factors=run["factors"] or {},
        repeat=run["repeat"],
        goodput_gbps=goodput["probed"] if goodput["unprobed"] is None else goodput["unprobed"],
        steal_percent=record["machine"]["steal_percent"],
        valid=record["verdict"]["valid"],
        others_share=record["machine_state"]["others_share"],
    )


def find_unsteady(samples: Iterable[Sample]) -> list[Unsteady]:
    """Points over a limit, in the order in which they first come. Invalid runs say nothing about noise."""
    judged = (_judge(of_point) for of_point in _by_point(samples))
    return [found for found in judged if found is not None]


def count_judged(samples: Iterable[Sample]) -> int:
    """Points with at least two valid runs: one alone says nothing about noise."""
    return sum(len(of_point) > 1 for of_point in _by_point(samples))


def _by_point(samples: Iterable[Sample]) -> list[list[Sample]]:
    valid = (one for one in samples if one.valid)
    return list(grouped(valid, lambda one: tuple(sorted(one.factors.items()))).values())


def _judge(samples: list[Sample]) -> Unsteady | None:
    reasons = []
    wide = False
    goodputs = [one.goodput_gbps for one in samples if one.goodput_gbps]
    if len(goodputs) > 1:
        variation = stdev(goodputs) / fmean(goodputs)
        if variation > VARIATION_LIMIT:
            found = stats.median_of(goodputs)
            wide = found.ends is not None and found.ends[1] - found.ends[0] > 2 * WIDTH_LIMIT * found.value
            reasons.append(
                f"goodput varies by {100 * variation:.0f} % (coefficient of variation of {len(goodputs)} "
                f"runs; limit {100 * VARIATION_LIMIT:.0f} %)"
            )
    steals = [one.steal_percent for one in samples if one.steal_percent is not None]
    stolen = bool(steals) and median(steals) > STEAL_LIMIT_PERCENT
    if stolen:
        reasons.append(
            f"the hypervisor took {median(steals):.1f} % of the CPU time (limit {STEAL_LIMIT_PERCENT:.0f} %)"
        )
    shares = [one.others_share for one in samples if one.others_share is not None]
    busy = bool(shares) and median(shares) > OTHERS_LIMIT
    if busy:
        reasons.append(
            f"other programs took {100 * median(shares):.0f} % of the CPUs (limit {100 * OTHERS_LIMIT:.0f} %)"
        )
    if not reasons:
        return None
    return Unsteady(
        samples[0].factors, "; ".join(reasons), (wide or stolen or busy) and len(samples) < MOST_REPEATS
    )

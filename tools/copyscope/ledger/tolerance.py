# SPDX-License-Identifier: GPL-2.0-only
"""Largest difference between two counts of the same CPU time that chance and known errors explain. Pure."""

import math

from copyscope.base import stats

# Level of the intervals in checks. A broken check makes a run invalid, so chance alone must break a check at
# most once in a thousand times.
VALIDITY_LEVEL = 0.999
# Fraction (0..1) of the larger count by which two counts of the same time may differ (time_tolerance()).
AGREE_SHARE = 0.05
# Time in ns that may be charged to the wrong task at each switch, because a timer that expires while a task
# is switched out is charged to the next task.
SWITCH_NS = 2_000


def time_tolerance(larger: float, chance: float, *, clock_error: float = 0.0, missing: float = 0.0) -> float:
    """Return the largest difference between two counts of the same time (docs/method.md, "Checks").

    All numbers are in the same unit: ns, cycles, or shares of a side's time.

    larger: the larger of the two counts
    chance: half of a count's 99.9 % interval, which depends on its number of samples
    clock_error: upper bound of the known error of a clock or counter
    missing: upper bound of the time that samples are known to miss, which covers every other error
    """
    return max(chance + AGREE_SHARE * larger + clock_error, missing)


def chance_of_samples(samples: float, sample_weight: float, counted: float) -> float:
    """Return half of the 99.9 % interval of the summed weight of samples, in the unit of the weight.

    A small number of samples is a poor estimate of the expected number, so the clock's estimate is used, too.

    sample_weight: weight of one sample
    counted: the same amount according to a clock or counter
    """
    expected_samples = max(samples, counted / sample_weight)
    return stats.normal_quantile(VALIDITY_LEVEL) * sample_weight * math.sqrt(expected_samples)

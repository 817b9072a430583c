# SPDX-License-Identifier: GPL-2.0-only
"""Format estimates and numbers for sentences and table cells. Pure functions."""

from copyscope.base.spelling import NOT_AVAILABLE
from copyscope.base.stats import SAME, Estimate, Missing


def spell_ratio(ratio: Estimate | Missing) -> str:
    """Format a ratio with its interval. If the interval includes 1, the text begins `no difference found`."""
    if isinstance(ratio, Missing):
        return f"n/a: {ratio.reason}"
    if ratio.low is None:
        return f"{number(ratio.value)} times, one repeat only"
    note = "no difference found, " if ratio.against(1.0) == SAME else ""
    return f"{note}{number(ratio.value)} times, {spell_interval(ratio)}"


def spell_interval(value: Estimate) -> str:
    """Format the interval of an estimate: `95 % interval 1.2 to 1.43`."""
    if value.low is None or value.high is None:
        return "one repeat: no interval"
    return f"{value.level * 100:.0f} % interval {number(value.low)} to {number(value.high)}"


def number(value: float) -> str:
    """Format a number with three significant digits, without an exponent: `0.123`, `12,300`."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"


def spell_estimate(value: Estimate | Missing) -> str:
    """Format an estimate with its interval, `42.1 [40.9, 43.5]`, or `n/a` if it is missing."""
    if isinstance(value, Missing):
        return NOT_AVAILABLE
    if value.low is None or value.high is None or value.low == value.value == value.high:
        return number(value.value)
    return f"{number(value.value)} [{number(value.low)}, {number(value.high)}]"

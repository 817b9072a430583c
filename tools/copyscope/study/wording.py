"""Estimates as words: what a sentence may say of a number and its interval. Pure."""

from collections.abc import Sequence

from copyscope.stats import SAME, Estimate, Missing


def say_ratio(ratio: Estimate | Missing) -> str:
    """A ratio for reading: `1.31 times, 1.2 to 1.43`, or that no difference was found."""
    if isinstance(ratio, Missing):
        return f"n/a: {ratio.reason}"
    if ratio.low is None:
        return f"{number(ratio.value)} times, one repeat only"
    found = "no difference found, " if ratio.against(1.0) == SAME else ""
    return f"{found}{number(ratio.value)} times, {interval(ratio)}"


def interval(value: Estimate) -> str:
    """The interval of an estimate for reading: `95 % interval 1.2 to 1.43`."""
    if value.low is None or value.high is None:
        return "one repeat: no interval"
    return f"{value.level * 100:.0f} % interval {number(value.low)} to {number(value.high)}"


def number(value: float) -> str:
    """Three digits, no exponent, a comma between thousands."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"


def listed(items: Sequence[str]) -> str:
    """Items as a sentence has them: `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"

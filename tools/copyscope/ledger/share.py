"""A part of CPU time with its interval, and how it is said: a finding needs its bounds. Pure."""

import math
from dataclasses import dataclass

from copyscope.ledger.attribution import SideTime, interval_of

# Less than this is not worth saying.
WORTH_SAYING = 0.005
# From so large a part on it is said that watching cost something, or that send calls were refused.
WORTH_A_WARNING = 0.05
# An interval that is no wider is said as one number, of whole percent as all of them are.
NARROW = 0.04
# The interval of any share of so many samples is at most 34 points wide; of fewer it is no finding.
FEWEST_SAMPLES = 30


@dataclass(frozen=True)
class Share:
    """Of CPU time (0..1). share: None where nothing but its bounds is known."""

    share: float | None
    low: float
    high: float

    def spoken(self) -> str:
        """`25 %` where that is certain; else its bounds, `20 to 44 %` or `at most 9 %`."""
        certain = self.low >= WORTH_SAYING or self.high < WORTH_SAYING
        if self.share is not None and self.high - self.low <= NARROW and certain:
            return percent(self.share)
        if self.low < WORTH_SAYING:
            return f"at most {self.at_most()}"
        low, high = f"{self.low * 100:.0f}", percent(self.high)
        return high if high == f"{low} %" else f"{low} to {high}"

    def shown(self) -> str:
        """`25 % (22 to 29)`, `at most 9 %`; only bounds: `31 to 35 %`."""
        if self.share is None or self.low < WORTH_SAYING:
            return Share(None, self.low, self.high).spoken()
        return f"{percent(self.share)} ({self.low * 100:.0f} to {self.high * 100:.0f})"

    def at_most(self) -> str:
        """Its upper bound, never rounded down."""
        return f"{math.ceil(self.high * 100)} %"


def share_of_samples(time: SideTime, share: float) -> Share:
    """A share with the interval that the samples of its side give it."""
    found = interval_of(time, share)
    return Share(share, found.low, found.high)


def percent(share: float | None) -> str:
    """A share for reading."""
    return "an unknown part" if share is None else f"{share * 100:.0f} %"

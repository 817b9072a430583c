# SPDX-License-Identifier: GPL-2.0-only
"""A share of CPU time with its interval and wording, and how long to watch if samples are too few. Pure."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from copyscope.base.spelling import counted
from copyscope.ledger.attribution import SideTime, cpu_time, share_interval, why_no_cpu_time
from copyscope.ledger.waiting import waiting
from copyscope.record.derived import AccountRow, Sides, Spent, StageRow
from copyscope.record.measured import Measured
from copyscope.record.run import Run
from copyscope.record.segments import select, wall_ns, why_undivided

Row = TypeVar("Row", bound=AccountRow | StageRow)

# Minimum share of CPU time (0..1) that a sentence mentions.
MENTIONED_SHARE_MIN = 0.005
# Minimum fraction (0..1) of goodput lost by watching, or of send calls refused, for which a sentence has a
# warning.
WARNED_SHARE_MIN = 0.05
# Maximum width (0..1) of an interval that is written as a single number. All shares are written in whole
# percent.
NARROW_WIDTH = 0.04
# Minimum share (0..1) that is written as a single number, because 2 % may stand for 0.6 to 4 %.
SINGLE_NUMBER_MIN = 0.05
# Minimum number of samples that supports a finding: the interval of any share is then at most 34 points wide.
SAMPLES_MIN = 30


def few_samples(raw: Measured, sides: Sides) -> str:
    """Return text such as `19 samples: too few for shares`, or "" if a run has enough samples or none.

    All screens, files and findings call this function before they show shares of CPU time. For a watched
    program, only samples of its own CPU time count, not softirq work charged to other tasks. If a run has no
    samples at all, its shares are unknown for another reason.
    """
    samples = _counted_samples(raw, sides)
    if samples >= SAMPLES_MIN or not raw.samples:
        return ""
    return f"{counted(samples, 'sample') if samples else 'no sample'}: too few for shares"


def _counted_samples(raw: Measured, sides: Sides) -> int:
    sampled: list[Spent] = [*sides.processes().values(), *([] if raw.target else [sides.other])]
    return sum(side.samples or 0 for side in sampled)


def samples_of(runs: Iterable[Run]) -> int:
    """Return the total number of samples from which the shares of some runs are computed."""
    return sum(_counted_samples(run.raw, run.derived.sides) for run in runs)


def supported(run: Run, rows: Iterable[Row]) -> list[Row]:
    """Return rows of a run. If samples are too few, leave out the CPU times and shares estimated from them.

    The interval of the CPU time stays, because it is valid for any number of samples.
    """
    few = few_samples(run.raw, run.derived.sides)
    if not few:
        return list(rows)
    reasons = dict.fromkeys(("cpu_ns", "ns_per_kib", "share"), few)
    return [
        replace(row, cpu_ns=None, ns_per_kib=None, share=None, reasons=reasons | row.reasons) for row in rows
    ]


@dataclass(frozen=True)
class Share:
    """A share of CPU time (0..1) with its interval. `share` is None if only the bounds are known."""

    share: float | None
    low: float
    high: float

    @property
    def decisive_low(self) -> float:
        """Lower end that more samples would raise. The `low` of SavingBounds stays low in any sample."""
        return self.low

    def spoken(self) -> str:
        """Return the share as text: `25 %` if the interval is narrow, else `20 to 44 %` or `at most 9 %`.

        A share below 5 % is written as a range, unless both ends are equal in whole percent.
        """
        is_one_sided = self.low < MENTIONED_SHARE_MIN <= self.high
        is_single = self.high - self.low <= NARROW_WIDTH and not is_one_sided
        if self.share is not None and self.share >= SINGLE_NUMBER_MIN and is_single:
            return percent(self.share)
        if self.low < MENTIONED_SHARE_MIN:
            return f"at most {self.at_most()}"
        low, high = f"{self.low * 100:.0f}", percent(self.high)
        return high if high == f"{low} %" else f"{low} to {high}"

    def shown(self) -> str:
        """Return the share with its bounds as text: `25 % (22 to 29)`, `at most 9 %` or `31 to 35 %`."""
        if self.share is None or self.low < MENTIONED_SHARE_MIN:
            return Share(None, self.low, self.high).spoken()
        return f"{percent(self.share)} ({self.low * 100:.0f} to {self.high * 100:.0f})"

    def at_most(self) -> str:
        """Return the upper bound as text, never rounded down."""
        return f"{math.ceil(self.high * 100)} %"


def share_of_samples(time: SideTime, share: float) -> Share:
    """Convert a share of a side's samples into a share of all CPU time, with its interval."""
    interval = share_interval(time, share)
    part = time.share_of_all
    return Share(share * part, interval.low * part, interval.high * part)


def share_of_all(time: SideTime, share: float) -> Share:
    """Return a share of all CPU time, with its interval from the samples of a side."""
    return share_of_samples(time, share / time.share_of_all if time.share_of_all else 0.0)


def percent(share: float | None) -> str:
    """Return a share in whole percent as text."""
    return "an unknown part" if share is None else f"{share * 100:.0f} %"


# Number of samples that a longer watch should give: the interval of a share of 25 % is then 25 % ± 9 points.
WANTED_SAMPLES = 100
# Number of samples with which any share is known to ±5 points: 1.96 * sqrt(1/4 / n) = 0.05.
ADVICE_SAMPLES = 385
# Sampling frequency in Hz that is suggested for programs that sleep a lot, because it does not slow such
# programs down. 999 Hz is not in step with events that happen every millisecond.
DENSE_FREQUENCY_HZ = 999
SHORTEST_S = 5
# Minimum number of samples for predicting the sampling rate. With fewer samples, the CPU time predicts it
# better.
RATE_SAMPLES_MIN = 8


@dataclass(frozen=True)
class TooFew:
    """Too few samples, and how to get enough.

    samples: samples of the program
    measured_s: measured time
    cpus: CPU time over wall time
    needed_s: time in seconds that gives enough samples
    longer: option or words for a longer watch
    remedy: advice to watch longer or to sample more often; for a program that mostly waits, how much it waits
    """

    samples: int
    measured_s: float
    cpus: float
    needed_s: float
    longer: str
    remedy: str

    def sentence(self) -> str:
        """Explain why the cost of copies is unknown."""
        share = round(self.cpus * 100, 1)
        used = "less than 1 % of a CPU" if share < 1 else f"{share:.0f} % of a CPU"
        return f"{self._samples()} in {self.measured_s:.1f} s, in which it used {used}: {self.remedy}"

    def for_advice(self, names: str) -> str:
        """Explain why some remedies (`names`) are not judged."""
        return f"{self._samples()} in {self.measured_s:.1f} s: too few to judge {names}: {self.remedy}"

    def briefly(self) -> str:
        """Return two or three words for a line beside the name of a remedy."""
        return "too few samples" if self.samples else "no sample"

    def _samples(self) -> str:
        return counted(self.samples, "sample") if self.samples else "no sample"


def too_few(
    raw: Measured, time: SideTime, needed: int = SAMPLES_MIN, wanted: int = WANTED_SAMPLES
) -> TooFew | None:
    """Return how to get enough samples of a watched program, or None if the run has enough samples.

    The result is also None if samples are missing for a reason other than the length of the watch.

    needed: number of samples that is enough
    wanted: number of samples that a longer watch should give
    """
    if time.weights.all_samples >= needed or not _was_sampled(raw):
        return None
    samples, frequency_hz = time.weights.all_samples, raw.sampler.frequency_hz
    segments = select(raw.run.segments, "ledger")
    spent_s, wall_s = cpu_time(raw, "target").ns / 1e9, wall_ns(segments) / 1e9
    expected = samples if samples >= RATE_SAMPLES_MIN else max(spent_s * frequency_hz, 1.0)
    needed_s = raw.run.measured_s * max(2.0 if wanted > needed else 1.2, wanted / expected)
    is_command = raw.watched.how == "command"
    if is_command:
        longer = remedy = f"let it run for {duration_option(needed_s)}"
    else:
        longer = f"--duration {duration_option(needed_s)}"
        remedy = f"watch longer ({longer})"
    if frequency_hz < DENSE_FREQUENCY_HZ:
        dense_s = max(SHORTEST_S, needed_s * frequency_hz / DENSE_FREQUENCY_HZ)
        duration = "" if is_command else f" --duration {duration_option(dense_s)}"
        denser = f"sample more often (--frequency {DENSE_FREQUENCY_HZ}{duration})"
        remedy = f"{remedy}, or {denser}"
    waits = waiting(raw)
    if waits is not None and waits.is_most:
        # More samples would not show why the program is slow.
        remedy = f"it waits {percent(waits.share)} of the time"
    cpus = spent_s / wall_s if wall_s else 0.0
    return TooFew(samples, raw.run.measured_s, cpus, needed_s, longer, remedy)


def too_few_for_advice(raw: Measured, time: SideTime) -> TooFew | None:
    """Return how to get enough samples for advice (shares to ±5 points), or None if there are enough."""
    return too_few(raw, time, ADVICE_SAMPLES, ADVICE_SAMPLES)


def _was_sampled(raw: Measured) -> bool:
    """Return True if the sampler ran while the program used CPU time."""
    if why_no_cpu_time(raw, "target") is not None or why_undivided(raw) is not None:
        return False
    return any(event.status == "sampled" for event in raw.sampler.events)


def duration_option(seconds: float) -> str:
    """Format a duration as an argument of --duration, rounded up: 15s, 3m."""
    if seconds <= 90:
        return f"{math.ceil(seconds / 5) * 5}s"
    return f"{math.ceil(seconds / 60)}m" if seconds <= 5400 else f"{math.ceil(seconds / 3600)}h"

"""A part of CPU time with its interval, how it is said, and how long to watch where it is unknown. Pure."""

import math
from dataclasses import dataclass

from copyscope.ledger.attribution import SideTime, cpu_time, interval_of, why_no_time
from copyscope.record.measured import Measured
from copyscope.record.segments import select, wall_ns, why_undivided
from copyscope.units import counted

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
    """A share of a side's samples as one of all CPU time, with the interval that these samples give it."""
    found = interval_of(time, share)
    return Share(share * time.part, found.low * time.part, found.high * time.part)


def share_of_all(time: SideTime, share: float) -> Share:
    """The same of what is one of all CPU time already."""
    return share_of_samples(time, share / time.part if time.part else 0.0)


def percent(share: float | None) -> str:
    """A share for reading."""
    return "an unknown part" if share is None else f"{share * 100:.0f} %"


# So many say a share of a quarter to 9 points.
WANTED_SAMPLES = 100
# Any share of so many has an interval of at most 5 points to both sides: 1.96 * sqrt(1/4 / n) = 0.05.
ADVICE_SAMPLES = 385
# Keeps no step with what happens every millisecond; a program that mostly sleeps is not held up by it.
OFTEN_HZ = 999
SHORTEST_S = 5
# Fewer samples than this say less of how often there are any than the CPU time does.
TELLING_SAMPLES = 8


@dataclass(frozen=True)
class TooFew:
    """How many there are, and what would give enough."""

    samples: int
    measured_s: float
    cpus: float
    longer: str
    remedy: str

    def sentence(self) -> str:
        """Of what its copies cost."""
        few = counted(self.samples, "sample") if self.samples else "no sample"
        return f"{few} in {self.measured_s:.1f} s, in which it used {_of_a_cpu(self.cpus)}: {self.remedy}"

    def for_advice(self) -> str:
        """Of shares that are to be known to 5 points."""
        few = counted(self.samples, "sample") if self.samples else "no sample"
        return f"{few} in {self.measured_s:.1f} s: too few for shares to ±5 points: {self.remedy}"

    def briefly(self) -> str:
        """For a line beside the name of a remedy."""
        return "too few samples" if self.samples else "no sample"


def too_few(
    raw: Measured, time: SideTime, least: int = FEWEST_SAMPLES, wanted: int = WANTED_SAMPLES
) -> TooFew | None:
    """None where there are enough, and where there are none for another reason."""
    if time.weights.effective_samples >= least or not _was_sampled(raw):
        return None
    samples = time.weights.all_samples
    segments = select(raw.run.segments, "ledger")
    spent_s = cpu_time(raw, "target").ns / 1e9
    expected = spent_s * raw.sampler.frequency_hz
    so_far = samples if samples >= TELLING_SAMPLES else max(expected, 1.0)
    needed_s = raw.run.measured_s * max(2.0 if wanted > least else 1.2, wanted / so_far)
    if raw.watched.how == "command":
        longer = f"let it run for {spelled(needed_s)}"
    else:
        longer = f"--duration {spelled(needed_s)}"
    remedy = f"watch longer ({longer})" if longer.startswith("--") else longer
    if raw.sampler.frequency_hz < OFTEN_HZ:
        often_s = max(SHORTEST_S, needed_s * raw.sampler.frequency_hz / OFTEN_HZ)
        more = "" if raw.watched.how == "command" else f" --duration {spelled(often_s)}"
        remedy += f", or look more often (--frequency {OFTEN_HZ}{more})"
    wall_s = wall_ns(segments) / 1e9
    return TooFew(samples, raw.run.measured_s, spent_s / wall_s if wall_s else 0.0, longer, remedy)


def too_few_for_advice(raw: Measured, time: SideTime) -> TooFew | None:
    """The same for shares that are known to 5 points."""
    return too_few(raw, time, ADVICE_SAMPLES, ADVICE_SAMPLES)


def _was_sampled(raw: Measured) -> bool:
    """Whether time passed in which it could have been: only then are there too few."""
    if why_no_time(raw, "target") is not None or why_undivided(raw) is not None:
        return False
    return any(event.status == "sampled" for event in raw.sampler.events)


def spelled(seconds: float) -> str:
    """As --duration takes it, rounded up: 15s, 3m."""
    if seconds <= 90:
        return f"{math.ceil(seconds / 5) * 5}s"
    return f"{math.ceil(seconds / 60)}m" if seconds <= 5400 else f"{math.ceil(seconds / 3600)}h"


def _of_a_cpu(cpus: float) -> str:
    share = round(cpus * 100, 1)
    return "less than 1 % of a CPU" if share < 1 else f"{share:.0f} % of a CPU"

"""Whether a watched program was sampled often enough to divide its time; else for how long to watch. Pure."""

import math
from dataclasses import dataclass

from copyscope.ledger.attribution import SideTime
from copyscope.ledger.cpu_time import cpu_time, why_no_time
from copyscope.ledger.share import FEWEST_SAMPLES
from copyscope.record.measured import Measured
from copyscope.record.segments import select, wall_ns, why_undivided
from copyscope.units import counted

# So many say a share of a quarter to 9 points.
WANTED_SAMPLES = 100
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

    def briefly(self) -> str:
        """For a line beside the name of a remedy."""
        few = counted(self.samples, "sample") if self.samples else "no sample"
        return f"not known from {few}: {self.longer}"


def too_few(raw: Measured, time: SideTime) -> TooFew | None:
    """None where there are enough, and where there are none for another reason."""
    if time.weights.effective_samples >= FEWEST_SAMPLES or not _was_sampled(raw):
        return None
    samples = time.weights.all_samples
    segments = select(raw.run.segments, "ledger")
    spent_s = cpu_time(raw, "target").ns / 1e9
    expected = spent_s * raw.sampler.frequency_hz
    so_far = samples if samples >= TELLING_SAMPLES else max(expected, 1.0)
    needed_s = raw.run.measured_s * max(2.0, WANTED_SAMPLES / so_far)
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

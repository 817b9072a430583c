"""Between two measured sizes: what a cost is there, and where one strategy overtakes another. Pure.

The logarithm of a cost, or of a ratio of two, is taken as straight in the logarithm of the size. Nothing is
known beyond the measured sizes. What a message costs is about a part for each call and a part for each byte.
Between two sizes such costs, and their ratios, go with the size where calls cost most, with its inverse where
bytes do, with its logarithm in between. So intervals hold all three, and are wide where sizes lie far apart.
"""

import math
import random
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Literal

from copyscope import stats
from copyscope.stats import Estimate

Verdict = Literal["crosses", "never", "always", "undetermined"]

DRAWS = 400
TAIL = 0.025
# Draws that cross several times or the other way round than the medians; more of them, and nothing is known.
AMBIGUOUS = 0.05
# How much further from their median so few repeats are taken to be.
WIDER = {2: 4.0, 3: 2.0}


def at_size(measured: Mapping[int, Estimate], size_bytes: float) -> Estimate | None:
    """What was measured at the sizes around this one, interpolated; None beyond the measured sizes."""
    sizes = sorted(measured)
    if not sizes or not sizes[0] <= size_bytes <= sizes[-1]:
        return None
    if size_bytes in sizes:
        return measured[int(size_bytes)]
    above = bisect_left(sizes, size_bytes)
    below, above = sizes[above - 1], sizes[above]
    a, b = measured[below], measured[above]
    parts = _parts(below, above, size_bytes)
    value, samples = _mean(a.value, b.value, parts[1]), min(a.samples, b.samples)
    if a.ends is None or b.ends is None:
        return Estimate(value, None, None, 0.0, samples)
    low = min(_mean(a.ends[0], b.ends[0], part) for part in parts)
    high = max(_mean(a.ends[1], b.ends[1], part) for part in parts)
    return Estimate(value, low, high, min(a.level, b.level), samples)


def _parts(below: float, above: float, size: float) -> tuple[float, float, float]:
    """How far a size is from one to the other, 0..1: by its inverse, its logarithm, and itself."""
    return (
        (1 / below - 1 / size) / (1 / below - 1 / above),
        math.log(size / below) / math.log(above / below),
        (size - below) / (above - below),
    )


def _mean(a: float, b: float, part: float) -> float:
    """So far from a to b: by their logarithms, where they have some."""
    if a > 0 and b > 0:
        return float(a ** (1 - part) * b**part)
    return a + (b - a) * part


@dataclass(frozen=True)
class Crossing:
    """`rising`: the second strategy wins above the size, else below it; None without a crossing.

    `low` and `high` None: that end of the interval lies outside of the measured sizes.
    `level` 0: nothing was repeated, so there is no interval.
    """

    verdict: Verdict
    size: float | None
    low: float | None
    high: float | None
    rising: bool | None
    level: float


def find(ratios: Mapping[int, Sequence[float]], seed: str) -> Crossing:
    """Where the second strategy overtakes the first. `ratios`: size -> cost of second / first in each repeat.

    The size is where the medians cross. How sure that is, and the interval, come from drawing the repeats of
    each size again, with replacement. Only what was measured to be better somewhere is said to be.
    """
    found = {size: stats.median_of(ratios[size]).against(1.0) for size in sorted(ratios)}
    # Whether the second is the cheaper one; None: no difference found.
    better = {size: None if one == stats.SAME else one == stats.LESS for size, one in found.items()}
    sizes = _telling(ratios, better)
    turns = _turns(sizes, [median(ratios[size]) for size in sizes])
    rising, size = (turns[0].rising, turns[0].size) if len(turns) == 1 else (None, None)
    if min(map(len, ratios.values())) < 2:
        return Crossing("undetermined", size, None, None, rising, 0.0)
    nowhere = Crossing("undetermined", None, None, None, None, stats.LEVEL)
    # Where the medians do not cross, their draws are read as those of a strategy that wins when large.
    upwards = rising is not False
    ends = _interval(sizes, ratios, upwards, seed)
    for second in (False, True):
        side = 0.0 if second == upwards else math.inf
        if ends == (side, side) and second in better.values():
            return replace(nowhere, verdict="always" if second else "never")
    if size is None or (ends := _interval(sizes, _widened(ratios), upwards, seed)) is None:
        return nowhere
    low, high = (end if 0 < end < math.inf else None for end in ends)
    if low is None and high is None:
        return nowhere
    below, above = ({better[at] for at in sizes if (at < size) == before} for before in (True, False))
    sure = None not in (low, high) and upwards in above and (not upwards) in below
    return Crossing("crosses" if sure else "undetermined", size, low, high, rising, stats.LEVEL)


def _interval(
    sizes: Sequence[int], ratios: Mapping[int, Sequence[float]], upwards: bool, seed: str
) -> tuple[float, float] | None:
    """Between which sizes 95 % of the draws cross; None where too many do so twice, or the other way."""
    found = [_ends(sizes, values, upwards) for values in _drawn(sizes, ratios, seed)]
    known = [ends for ends in found if ends is not None]
    if len(known) < (1 - AMBIGUOUS) * len(found):
        return None
    low = sorted(low for low, _ in known)[math.floor(TAIL * (len(known) - 1))]
    high = sorted(high for _, high in known)[math.ceil((1 - TAIL) * (len(known) - 1))]
    return low, high


def _telling(ratios: Mapping[int, Sequence[float]], sides: Mapping[int, bool | None]) -> list[int]:
    """The sizes that say something: one wild run between sizes that agree is no crossing."""

    def silent(size: int) -> bool:
        before = [sides[at] for at in sides if at < size and sides[at] is not None][-1:]
        after = [sides[at] for at in sides if at > size and sides[at] is not None][:1]
        return sides[size] is None and before == after == [median(ratios[size]) < 1]

    return [size for size in sides if not silent(size)]


@dataclass(frozen=True)
class Turn:
    """One change of sides, between two sizes."""

    rising: bool
    low: float
    size: float
    high: float


def _turns(sizes: Sequence[int], ratios: Sequence[float]) -> list[Turn]:
    found = []
    for (below, a), (above, b) in pairwise(zip(sizes, map(math.log, ratios), strict=True)):
        if (a > 0) != (b > 0):
            part = a / (a - b)
            low = 1 / ((1 - part) / below + part / above)
            found.append(Turn(a > 0, low, _mean(below, above, part), below + (above - below) * part))
    return found


def _ends(sizes: Sequence[int], ratios: Sequence[float], upwards: bool) -> tuple[float, float] | None:
    """Between which sizes this draw crosses: 0 below all of them, infinity above; None: not once that way."""
    match _turns(sizes, ratios):
        case []:
            nowhere = math.inf if (ratios[0] > 1) == upwards else 0.0
            return nowhere, nowhere
        case [turn] if turn.rising == upwards:
            return turn.low, turn.high
    return None


def _drawn(sizes: Sequence[int], ratios: Mapping[int, Sequence[float]], seed: str) -> Iterator[list[float]]:
    """Medians of as many repeats of each size as there are, drawn with replacement."""
    # Text seeds alike on every machine and in every process; a name in a record may be no UTF-8.
    generator = random.Random(seed.encode(errors="surrogatepass"))
    known: dict[tuple[float, ...], float] = {}  # of three repeats there are ten draws only
    for _ in range(DRAWS):
        chosen = [
            tuple(sorted(generator.choices(values, k=len(values))))
            for values in (ratios[size] for size in sizes)
        ]
        for one in chosen:
            if one not in known:
                known[one] = median(one)
        yield [known[one] for one in chosen]


def _widened(ratios: Mapping[int, Sequence[float]]) -> dict[int, list[float]]:
    """Two or three repeats drawn again cannot leave their range, which holds the truth too seldom.

    The factors are those with which 95 % of the intervals of simulated runs hold the known size
    (tests/pure/test_crossover.py).
    """
    found = {}
    for size, values in ratios.items():
        middle, factor = median(values), WIDER.get(len(values), 1.0)
        found[size] = [middle * (value / middle) ** factor for value in values]
    return found

"""Resampled costs: what the repeats could have said. Pure, seeded by the point, so reproducible.

Each draw takes as many repeats of a point as there are, with replacement. Sampled rows only divide the CPU
time of a side: a draw is the median of the totals, split by the mean of the shares.
"""

import math
import random
from collections.abc import Mapping, Sequence
from statistics import fmean, median

from copyscope.crossover.cost_model import GROUPS, Size
from copyscope.grouping import gathered

# group -> ns per message, for each draw; draw 0 is the measurement itself
GroupDraws = list[dict[str, float]]

TWO = 2.0  # how much further from their median two repeats are taken to be


def block_effects(sizes: Sequence[Size], part: str) -> dict[int, float]:
    """Repeat -> how much dearer everything was in it, as a logarithm: the median over the points.

    This is the pairing by block: a machine that was slow for one repeat was slow for all strategies in it.
    """
    known = [values for size in sizes if len(values := size.totals[part]) > 1 and min(values.values()) > 0]
    deviations = gathered(
        (repeat, math.log(value) - math.log(median(values.values())))
        for values in known
        for repeat, value in values.items()
    )
    # with few points the median would follow their own noise and hide it
    return {repeat: median(found) for repeat, found in deviations.items() if len(found) >= 8}


def drawn(size: Size, part: str, effects: Mapping[int, float], count: int, seed: str) -> GroupDraws | None:
    """`count` draws of one part of a point's cost, after the measurement itself; None when not measured."""
    totals = {r: value / math.exp(effects.get(r, 0.0)) for r, value in size.totals[part].items()}
    if not totals:
        return None
    repeats = sorted(totals)
    middle = median(totals.values())
    widened = {repeat: _widen(totals[repeat], middle, len(repeats)) for repeat in repeats}
    shares = size.shares.get(part, {})
    whole = _mean_shares(list(shares.values()))
    made = [_split(middle, part, whole)]
    # Text seeds alike on every machine and in every process; a name in a record may be no UTF-8.
    generator = random.Random(f"{seed} {part} {size.size_bytes}".encode(errors="surrogatepass"))
    # three repeats can be drawn in ten ways only, whatever their order
    known: dict[tuple[int, ...], dict[str, float]] = {}
    for _ in range(count):
        chosen = tuple(sorted(generator.choices(repeats, k=len(repeats))))
        if chosen not in known:
            mixed = _mean_shares([shares[r] for r in chosen if r in shares]) or whole
            known[chosen] = _split(median([widened[r] for r in chosen]), part, mixed)
        made.append(known[chosen])
    return made


def _widen(value: float, middle: float, count: int) -> float:
    """Two repeats resample too narrowly, medians of three and more do not (tests/pure/test_crossover.py).

    Of two, a resample has half the variance that it stands for; the other half of the factor is for the
    variance itself, which two repeats of a few points do not know well.
    """
    if count != 2:
        return value
    if value > 0 and middle > 0:
        return float(middle * (value / middle) ** TWO)
    return max(0.0, middle + (value - middle) * TWO)


def _mean_shares(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {group: fmean([one[group] for one in found]) for group in GROUPS} if found else {}


def _split(total: float, part: str, shares: Mapping[str, float]) -> dict[str, float]:
    if part == "wall":
        return {"time": total}
    if not shares:  # not sampled: its groups are not known, its sum is
        return {**dict.fromkeys(GROUPS, 0.0), "rest": total}
    return {group: total * share for group, share in shares.items()}

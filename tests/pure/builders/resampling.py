"""Most records have the same segments: what is resampled of them is drawn once."""

from collections.abc import Sequence
from functools import lru_cache

from copyscope import stats

drawn = lru_cache(maxsize=4096)(stats.bootstrap)


def bootstrap(values: Sequence[float], seed: int, draws: int = stats.DRAWS) -> tuple[float, float]:
    return drawn(tuple(values), seed, draws)


stats.bootstrap = bootstrap

"""Some hosts instead of all: who is drawn, and how far a share of them may be from that of all. Pure."""

import math
import random
from collections.abc import Sequence

# Of the normal distribution: 95 % lie between -Z and Z.
Z = 1.96


def draw(names: Sequence[str], count: int, seed: int) -> list[str]:
    """So many of them, in the order in which they stand; the same seed draws the same."""
    drawn = set(random.Random(seed).sample(range(len(names)), count))
    return [name for at, name in enumerate(names) if at in drawn]


def margin(count: int, of: int) -> float:
    """A share of the drawn lies within so much of that of all, 19 times of 20.

    Drawn without putting back: all of all leaves nothing open (Cochran, Sampling Techniques, 3.2). A share of
    a half is the worst.
    """
    if of <= 1 or count >= of:
        return 0.0
    return Z * math.sqrt(0.25 / count * (of - count) / (of - 1))

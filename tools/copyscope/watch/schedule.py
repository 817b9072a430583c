"""When which instruments are attached, for a run whose end nobody may know."""

import random
from collections.abc import Iterator, Sequence

from copyscope.plan import ARM_WEIGHTS, BLOCK_MAX_S, Arm, Segment, schedule_segments

# A program that may end at any moment is seen by every arm soon; one that goes on is disturbed seldom.
FIRST_BLOCKS_S = (0.5, 0.5, 1.0)


def segments(duration_s: float | None, arms: Sequence[Arm], seed: int) -> Iterator[Segment]:
    """Blocks that hold every arm once, in seeded order: for a duration, or without an end."""
    if duration_s is not None:
        yield from schedule_segments(duration_s, arms, seed)
        return
    shuffler = random.Random(seed)
    total_weight = sum(ARM_WEIGHTS[arm] for arm in arms)
    index = block = 0
    while True:
        length_s = FIRST_BLOCKS_S[block] if block < len(FIRST_BLOCKS_S) else BLOCK_MAX_S
        order = list(arms)
        shuffler.shuffle(order)
        for arm in order:
            yield Segment(index, block, arm, length_s * ARM_WEIGHTS[arm] / total_weight)
            index += 1
        block += 1

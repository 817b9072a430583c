"""When which instruments are attached, for a run whose end nobody may know."""

import math
import random
from collections.abc import Iterator, Sequence

from copyscope.plan import ARM_WEIGHTS, BLOCK_MAX_S, Arm, Segment, schedule_segments

# A program that may end at any moment is seen by every arm soon; one that goes on is disturbed seldom.
FIRST_BLOCKS_S = (0.5, 0.5, 1.0)


def segments(
    duration_s: float | None, arms: Sequence[Arm], seed: int, block_s: float | None = None
) -> Iterator[Segment]:
    """Blocks that hold every arm once, in seeded order: for a duration, or without an end.

    `block_s` sets the length of a block, also for a duration: the last one may then be cut short by its end.
    """
    if duration_s is not None and block_s is None:
        yield from schedule_segments(duration_s, arms, seed)
        return
    shuffler = random.Random(seed)
    total_weight = sum(ARM_WEIGHTS[arm] for arm in arms)
    index = block = 0
    left_s = math.inf if duration_s is None else duration_s
    while left_s > 0:
        length_s = FIRST_BLOCKS_S[block] if block < len(FIRST_BLOCKS_S) else block_s or BLOCK_MAX_S
        left_s -= length_s
        order = list(arms)
        shuffler.shuffle(order)
        if block < len(FIRST_BLOCKS_S):
            # Function hooks take longest to attach: a program that ends soon is not to end meanwhile.
            order.sort(key=lambda arm: arm == "functions")
        for arm in order:
            yield Segment(index, block, arm, length_s * ARM_WEIGHTS[arm] / total_weight)
            index += 1
        block += 1

"""From counted stacks to rows of a ledger, per KiB that was delivered. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from copyscope import stats
from copyscope.record.simulated import COUNTED
from copyscope.simulate.output import Counts, Stack
from copyscope.simulate.symbols import UNKNOWN_ROOT, frames
from copyscope.taxonomy.taxonomy import ACCOUNTS, STAGES, Taxonomy

METHOD = "modelled"
ALL = "all"
COMMAND = "command"
SIDES = ("sender", "receiver", COMMAND, "other")
# Functions of user mode that copy, by any of the names that C libraries give them.
COPYING = re.compile(r"mem(p?cpy|move)|bcopy")
CONTEXTS = ("process", "softirq", "user")
Key = tuple[str, str, str]  # account or stage, side, context
SEEDS_MAX = 10


def add_up(
    stacks: Iterable[Stack], known: dict[str, str], taxonomy: Taxonomy, *, gathers: bool
) -> dict[Key, Counts]:
    """Counts by category, side and context.

    `gathers`: the strategy copies in user mode, so that what the sender does there is the account gather (the
    copy, and the loop around it).
    """
    parts = []
    for stack in stacks:
        found = taxonomy.classify(frames(stack.frames, known) if stack.frames else ())
        category, context = found.category, str(found.context)
        if context == "user" and stack.side == "sender" and gathers:
            category, context = "gather", "process"
        parts.append(((category, stack.side, context), stack.counts))
    return _together(parts)


def of_command(stacks: Iterable[Stack], known: dict[str, str], taxonomy: Taxonomy) -> dict[Key, Counts]:
    """The same where no marker says a side: the process that makes system calls is the command.

    What idles, and threads of the kernel, began before anybody looked. In user mode a function that copies is
    the account gather, whichever way it copies.
    """
    parts = []
    for stack in stacks:
        user = not stack.frames or not int(stack.frames[0], 16) >> 63
        names = frames(stack.frames, known)
        found = taxonomy.classify(() if user else names)
        copies = user and bool(names) and COPYING.search(names[0]) is not None
        side = stack.side if stack.frames[-1:] == (UNKNOWN_ROOT,) else COMMAND
        parts.append((("gather" if copies else found.category, side, str(found.context)), stack.counts))
    return _together(parts)


def by_account(sums: Mapping[Key, Counts]) -> dict[Key, Counts]:
    """Each account as one: on which side's time a late copy runs is chance, its sum is not."""
    return _together(((key[0], ALL, ALL), counts) for key, counts in sums.items() if key[0] in ACCOUNTS)


def by_side(sums: Mapping[Key, Counts]) -> dict[Key, Counts]:
    """All that is of one side."""
    return _together(((ALL, key[1], ALL), counts) for key, counts in sums.items())


def _together(parts: Iterable[tuple[Key, Counts]]) -> dict[Key, Counts]:
    whole: dict[Key, Counts] = defaultdict(lambda: dict.fromkeys(COUNTED, 0))
    for key, counts in parts:
        for name in COUNTED:
            whole[key][name] += counts[name]
    return dict(whole)


def per_kib(seeds: Sequence[Mapping[Key, Counts]], kib: float) -> list[dict[str, Any]]:
    """One row per category, side and context: means over the seeds, and half of their 95 % intervals."""
    keys = sorted({key for seed in seeds for key in seed}, key=_order)
    made = []
    for key in keys:
        row: dict[str, Any] = {"side": key[1], "method": METHOD}
        if key[0] != ALL:
            kind = "account" if key[0] in ACCOUNTS else "stage"
            row |= {"kind": kind, "category": key[0], "context": key[2]}
        for name in COUNTED:
            values = [seed[key][name] / kib if key in seed else 0.0 for seed in seeds]
            found = stats.difference_of([0.0] * len(values), values, paired=True)
            row[f"{name}_per_kib"] = round(found.value, 4)
            # One value tells no spread.
            row[f"{name}_per_kib_half_width"] = found.high and round(found.high - found.value, 4)
        made.append(row)
    return made


def _order(key: Key) -> tuple[int, int, int]:
    return (
        _place((*ACCOUNTS, *STAGES), key[0]),
        _place(SIDES, key[1]),
        _place(CONTEXTS, key[2]),
    )


def _place(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else len(names)

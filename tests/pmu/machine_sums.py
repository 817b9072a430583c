# SPDX-License-Identifier: GPL-2.0-only
"""Counts of the machine by rows of the ledger, without the work of the instruments. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from copyscope.run.simulate import counted_stacks
from copyscope.taxonomy.taxonomy import Taxonomy

# Functions of instruments on a stack: trampolines, programs, and functions that the kernel calls around a
# program (kernel/bpf/trampoline.c), some of which end in a jump.
TRAMPOLINE = "bpf_trampoline_"
PROGRAM = re.compile(r"_*bpf_(?!trampoline_)|migrate_(en|dis)able|_*rcu_read_|update_prog_stats")
NMI = re.compile(r"(asm_exc|first|repeat|end_repeat|exc)_nmi")
# Account -> its hooked function. The account also includes the allocation of notifications and accounting of
# pages.
HOOKED = {"pin": "skb_zerocopy_iter_stream"}
# Cycles per miss in the model of time (src/simulator/simpmu.h).
MISS_CYCLES = {"l1d": 14, "l2": 36, "llc": 150}

Key = tuple[str, str, str]  # category, side, context


@dataclass
class Truth:
    """Counts of each row: without instruments, of hooks in the row, and of sampling interrupts in the row."""

    rows: dict[Key, Counter[str]] = field(default_factory=dict)
    hooks: dict[Key, Counter[str]] = field(default_factory=dict)
    interrupts: dict[Key, Counter[str]] = field(default_factory=dict)
    # Part of `rows`: work in an account but outside the function that is hooked for it.
    around: dict[Key, Counter[str]] = field(default_factory=dict)

    def of(self, column: str, category: str, side: str | None = None) -> int:
        """Return the sum of a column over the rows of a category, without instruments."""
        keys = (key for key in self.rows if key[0] == category and key[1] == (side or key[1]))
        return sum(self.rows[key][column] for key in keys)

    def hooked(self, column: str, category: str, side: str | None = None) -> int:
        """Return the same sum for the hooked functions only."""
        keys = (key for key in self.around if key[0] == category and key[1] == (side or key[1]))
        return self.of(column, category, side) - sum(self.around[key][column] for key in keys)

    def of_interrupts(self, column: str, side: str) -> int:
        """Return the counts of sampling interrupts in the time of a process."""
        return sum(counts[column] for key, counts in self.interrupts.items() if key[1] == side)

    def with_instruments(self, column: str, side: str, *, user: bool = True) -> int:
        """Return the sum of a column over all work of a process, including instruments."""
        return sum(
            counts[column]
            for table in (self.rows, self.hooks, self.interrupts)
            for (_, owner, context), counts in table.items()
            if owner == side and (user or context != "user")
        )


def divide(frames: Sequence[str]) -> tuple[list[str], str]:
    """Return a stack (leaf first) without functions of instruments, and its table in Truth."""
    frames_left: list[str] = []
    below = ""
    for name in reversed(frames):
        if NMI.match(name):
            return frames_left[::-1], "interrupts"
        if PROGRAM.match(name):
            return frames_left[::-1], "hooks"
        # A trampoline continues with the function that called it, or with a function to which that one jumps.
        if not name.startswith(TRAMPOLINE) and not (
            below.startswith(TRAMPOLINE) and frames_left[-1:] == [name]
        ):
            frames_left.append(name)
        below = name
    return frames_left[::-1], "hooks" if below.startswith(TRAMPOLINE) else "rows"


def truth(stacks: Iterable[counted_stacks.CountedStack], text: str, taxonomy: Taxonomy) -> Truth:
    """Sum the plugin's stacks by row. `text`: the guest's symbols."""
    names = counted_stacks.name_symbols((text,), taxonomy)
    sums = Truth()
    for stack in stacks:
        frames, table = divide(counted_stacks.name_stack(stack.frames, names))
        kind = taxonomy.classify(frames)
        key = (kind.category, stack.side, str(kind.context))
        counts = getattr(sums, table).setdefault(key, Counter())
        counts.update(stack.counts)
        counts["cycles"] += cycles(stack.counts)
        if table == "rows" and kind.category in HOOKED and HOOKED[kind.category] not in frames:
            around = sums.around.setdefault(key, Counter())
            around.update(stack.counts)
            around["cycles"] += cycles(stack.counts)
    return sums


def cycles(counts: Mapping[str, int]) -> int:
    """Return the cycles of the model for these counts."""
    misses = (
        (counts[f"{level}_load_misses"] + counts[f"{level}_store_misses"]) * cost
        for level, cost in MISS_CYCLES.items()
    )
    return counts["instructions"] + sum(misses)

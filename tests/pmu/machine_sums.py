"""What the machine counted, by rows of the ledger, and what of it the instruments did themselves. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from copyscope.simulate import document, output, symbols
from copyscope.taxonomy.taxonomy import Taxonomy

# What stands around a function, and what it calls before and after it: programs, and what the kernel does
# around each (kernel/bpf/trampoline.c), some of which ends in a jump.
TRAMPOLINE = "bpf_trampoline_"
PROGRAM = re.compile(r"_*bpf_(?!trampoline_)|migrate_(en|dis)able|_*rcu_read_|update_prog_stats")
NMI = re.compile(r"(asm_exc|first|repeat|end_repeat|exc)_nmi")
# The account has the making of the notification, too, and what counts pinned pages.
HOOKED = {"pin": "skb_zerocopy_iter_stream"}
# A model of time (src/simulator/simpmu.h).
MISS_CYCLES = {"l1d": 14, "l2": 36, "llc": 150}

Key = tuple[str, str, str]  # category, side, context


@dataclass
class Truth:
    """Counts of each row: without instruments, of the hooks within it, and of the interrupts that sample."""

    rows: dict[Key, Counter[str]] = field(default_factory=dict)
    hooks: dict[Key, Counter[str]] = field(default_factory=dict)
    interrupts: dict[Key, Counter[str]] = field(default_factory=dict)
    # Of the rows: what is in an account and not in the function that is hooked for it.
    around: dict[Key, Counter[str]] = field(default_factory=dict)

    def of(self, column: str, category: str, side: str | None = None) -> int:
        """One column of a category's rows, without the instruments."""
        mine = (key for key in self.rows if key[0] == category and key[1] == (side or key[1]))
        return sum(self.rows[key][column] for key in mine)

    def hooked(self, column: str, category: str, side: str | None = None) -> int:
        """The same of what its hooks can see."""
        mine = (key for key in self.around if key[0] == category and key[1] == (side or key[1]))
        return self.of(column, category, side) - sum(self.around[key][column] for key in mine)

    def with_instruments(self, column: str, side: str, *, user: bool = True) -> int:
        """One column of all that a side did, with what the instruments did on its time."""
        return sum(
            counts[column]
            for table in (self.rows, self.hooks, self.interrupts)
            for (_, whose, context), counts in table.items()
            if whose == side and (user or context != "user")
        )


def divide(frames: Sequence[str]) -> tuple[list[str], str]:
    """A stack (the leaf first) as it were without instruments, and whose work its leaf is."""
    kept: list[str] = []
    below = ""
    for name in reversed(frames):
        if NMI.match(name):
            return kept[::-1], "interrupts"
        if PROGRAM.match(name):
            return kept[::-1], "hooks"
        # A trampoline goes on with the function that called it, or with what that jumps to.
        if not name.startswith(TRAMPOLINE) and not (below.startswith(TRAMPOLINE) and kept[-1:] == [name]):
            kept.append(name)
        below = name
    return kept[::-1], "hooks" if below.startswith(TRAMPOLINE) else "rows"


def truth(stacks: Iterable[output.Stack], text: str, taxonomy: Taxonomy) -> Truth:
    """The plugin's stacks by row; `text`: the guest's symbols."""
    known = document.known_symbols((text,), taxonomy)
    found = Truth()
    for stack in stacks:
        frames, whose = divide(symbols.frames(stack.frames, known))
        kind = taxonomy.classify(frames)
        key = (kind.category, stack.side, str(kind.context))
        counts = getattr(found, whose).setdefault(key, Counter())
        counts.update(stack.counts)
        counts["cycles"] += cycles(stack.counts)
        if whose == "rows" and kind.category in HOOKED and HOOKED[kind.category] not in frames:
            around = found.around.setdefault(key, Counter())
            around.update(stack.counts)
            around["cycles"] += cycles(stack.counts)
    return found


def cycles(counts: Mapping[str, int]) -> int:
    """What the PMU counts as cycles."""
    misses = (
        (counts[f"{level}_load_misses"] + counts[f"{level}_store_misses"]) * cost
        for level, cost in MISS_CYCLES.items()
    )
    return counts["instructions"] + sum(misses)

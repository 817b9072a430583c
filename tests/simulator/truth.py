"""The instruments of copyscope against a machine in which every instruction is counted.

    make check-simulator                            Linux 6.12
    make check-simulator KERNELS="6.1 6.12 7.x"
    make check-simulator EXTENT=brief               calls only

calls: of the functions that the exact tier hooks, entered as the simulator saw it: equal, call by call.
shares: of each row of the ledger, by samples of the guest's timer and by counted instructions. There an
instruction takes a nanosecond, so that both are shares of the same.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import calls
import shares
from beside import Case, Seen, boot_beside
from copyscope.errors import RunError
from copyscope.simulate import kernels
from copyscope.taxonomy.taxonomy import Taxonomy

HOOKED = "--functions --attach fentry --functions-gate 1"
CALLS = tuple(Case(impl, HOOKED, "functions", 0.2, 0.5) for impl in ("one_copy", "zero_copy"))
# Several frequencies: the guest repeats itself to the nanosecond, and a fixed period keeps step with it.
FREQUENCIES_HZ = (2801, 3137, 3491, 3989, 4409, 4801, 5237, 5701)
SHARES = tuple(
    Case(impl, f"{hooks}--frequency {hz}", instruments, 0, 0.15)
    for impl, hooks, instruments in (
        ("one_copy", "", "sampler"),
        ("zero_copy", f"{HOOKED} ", "functions,sampler"),
    )
    for hz in FREQUENCIES_HZ
)
# Two processors of a guest go as fast as the host lets each: in one boot of some ten, one receive call of a
# hundred was in the hooks' counts alone (why is not known). And QEMU 7.2 may run code half written that the
# kernel patches on the other processor: the guest ends with an Oops. What differs is looked at once more.
TRIES = 2
# A row that is no handful of samples.
LARGE = 0.05
# Of our own programs: while one changes a map the kernel runs none for perf (bpf_disable_instrumentation()).
UNJUDGED = "instruments"
# How far a large row may be off: what interrupts cannot interrupt, and what is left of keeping step.
ERROR_MAX = 0.06


def check_calls(seen: Seen) -> int:
    """Prints a line for each category, and returns how many differ."""
    exact = calls.exact(seen.before, seen.after)
    modelled = calls.modelled(seen.modelled.stacks, seen.names, seen.after["hooks"])
    differ = 0
    for key in sorted({*exact, *modelled}):
        functions = modelled.get(key, Counter())
        same = exact[key] == sum(functions.values())
        differ += not same
        named = ", ".join(f"{name} {count}" for name, count in sorted(functions.items()))
        print(f"  {' '.join(key):32}{exact[key]:7}  {'=' if same else 'NOT'} {named or 'none'}")
    # Without any there is nothing that agrees.
    return differ if exact else 1


@dataclass(frozen=True)
class Counted:
    """Both counts of several measurements."""

    sampled: Counter[shares.Key]
    instructions: Counter[shares.Key]


def counts(group: Sequence[Seen], taxonomy: Taxonomy) -> Counted:
    """Of all of them together."""
    sampled, instructions = (Counter[shares.Key]() for _ in range(2))
    for seen in group:
        sampled += shares.sampled(seen.after["samples"], taxonomy)
        instructions += shares.counted(seen.modelled.stacks, shares.Classifier(seen.names, taxonomy))
    return Counted(sampled, instructions)


def check_shares(group: Sequence[Seen], taxonomy: Taxonomy) -> int:
    """A line for each row, with how many points samples are off; returns how many large rows are off."""
    found = counts(group, taxonomy)
    rows = shares.compare(found.sampled, found.instructions)
    print(f"  {'':32}counted  sampled, 95 %             error, points")
    for row in rows:
        print(line(row))
    large = [row for row in rows if row.counted >= LARGE and row.key[2] != UNJUDGED]
    inside, off = sum(row.inside for row in large), sum(abs(row.error) > ERROR_MAX for row in large)
    print(
        f"  of {len(large)} rows of {LARGE:.0%} and more {inside} have the counted share in their interval,"
        f" {off} are off by more than {100 * ERROR_MAX:.0f} points"
    )
    # Without any there is nothing that agrees.
    return off if large else 1


def show_tiers(group: Sequence[Seen], taxonomy: Taxonomy) -> None:
    """The exact tier, samples of the same time, and the truth: with our programs, and without."""
    found = counts(group, taxonomy)
    hits = shares.shares(shares.in_kernel(found.sampled, without=("irq",)))
    # An instruction takes a nanosecond: times of copies are parts of all instructions.
    spent = shares.in_kernel(sum((shares.exact(seen.before, seen.after) for seen in group), Counter()))
    exact = shares.shares_of(spent, shares.in_kernel(found.instructions, without=("irq",)))
    whole, bare = (
        shares.shares(shares.in_kernel(found.instructions, without=without))
        for without in (("irq",), ("irq", "instruments"))
    )
    print("  of the kernel's part: exact tier | sampled | counted | counted without our programs")
    for key in sorted({*exact, *whole}, key=lambda key: (shares.SIDES.index(key[0]), -whole.get(key, 0.0))):
        cells = (f"{100 * of.get(key, 0.0):6.2f}" for of in (exact, hits, whole, bare))
        print(f"  {' '.join(key):32}{' | '.join(cells)}")


def line(row: shares.Share) -> str:
    part, hit, low, high = (f"{100 * share:.2f}" for share in (row.counted, row.sampled, row.low, row.high))
    said = f"  {' '.join(row.key):32}{part:>7}{hit:>8} ({low} to {high})".ljust(66)
    return f"{said}{100 * row.error:+6.2f}{'' if row.inside else '  not inside'}"


def compare_calls(name: str) -> int:
    """One boot; how many rows differ."""
    differ = 0
    try:
        for seen in boot_beside(name, CALLS, exact=False, vcpus=2, say=print):
            print(f"Linux {name}, {seen.case.impl}: calls by the exact tier, and entered")
            differ += check_calls(seen)
    except RunError as error:
        print(f"Linux {name}: {error}")
        return 1
    return differ


def main(names: Iterable[str], *, brief: bool) -> int:
    """Exit status: 1 when calls differ in two boots, or the share of a large row is off."""
    taxonomy, differ = Taxonomy.load(), 0
    for name in names or (kernels.DEFAULT,):
        differ += all(compare_calls(name) for _ in range(TRIES))
        every = () if brief else boot_beside(name, SHARES, exact=True, vcpus=1, say=print)
        for (impl, instruments), found in groupby(
            every, key=lambda seen: (seen.case.impl, seen.case.instruments)
        ):
            group = list(found)
            print(f"Linux {name}, {impl}, {instruments}: share counted, and sampled")
            differ += check_shares(group, taxonomy) > 0
            if "functions" in instruments:
                show_tiers(group, taxonomy)
    return 1 if differ else 0


if __name__ == "__main__":
    arguments = sys.argv[1:]
    named = [word for word in arguments if word != "--brief"]
    sys.exit(main(named, brief=named != arguments))

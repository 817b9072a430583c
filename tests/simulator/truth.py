# SPDX-License-Identifier: GPL-2.0-only
"""Compare copyscope's instruments with a simulated machine that counts every instruction.

    make check-simulator                            Linux 6.12
    make check-simulator KERNELS="6.1 6.12 7.x"
    make check-simulator EXTENT=brief               calls only

calls: the calls of each hooked function are equal by the exact tier and by the simulator.
shares: the share of each row of the ledger by samples of the guest's timer agrees with its share of counted
instructions, because an instruction takes a nanosecond in the guest.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import calls
import shares
from beside import Case, Seen, boot_beside
from copyscope.base.errors import RunError
from copyscope.run.simulate import kernels
from copyscope.taxonomy.taxonomy import Taxonomy

HOOKED = "--functions --attach fentry --functions-gate 1"
CALLS = tuple(Case(impl, HOOKED, "functions", 0.2, 0.5) for impl in ("one_copy", "zero_copy"))
# Several frequencies, because the guest repeats itself exactly and may stay in step with a fixed period.
FREQUENCIES_HZ = (2801, 3137, 3491, 3989, 4409, 4801, 5237, 5701)
SHARES = tuple(
    Case(impl, f"{hooks}--frequency {hz}", instruments, 0, 0.15)
    for impl, hooks, instruments in (
        ("one_copy", "", "sampler"),
        ("zero_copy", f"{HOOKED} ", "functions,sampler"),
    )
    for hz in FREQUENCIES_HZ
)
# Boots until calls must be equal. Two CPUs of a guest run as fast as the host lets them: in one boot of ten,
# one receive call of a hundred was only in the hooks' counts (the cause is unknown). QEMU 7.2 may run code
# that the kernel is patching on the other CPU, and the guest ends with an Oops.
TRIES = 2
# Minimum share of a row with enough samples to judge.
LARGE = 0.05
# Row of our own programs, which is not judged: the kernel takes no samples while a program changes a map
# (bpf_disable_instrumentation()).
UNJUDGED = "instruments"
# Maximum error of a large row: the timer cannot interrupt all code, and may stay in step with the guest.
ERROR_MAX = 0.06


def check_calls(case: Seen) -> int:
    """Print a line for each row, and return the number of rows that differ."""
    exact = calls.exact(case.before, case.after)
    modelled = calls.modelled(case.modelled.stacks, case.names, case.after["hooks"])
    differ = 0
    for key in sorted({*exact, *modelled}):
        functions = modelled.get(key, Counter())
        same = exact[key] == sum(functions.values())
        differ += not same
        named = ", ".join(f"{name} {count}" for name, count in sorted(functions.items()))
        print(f"  {' '.join(key):32}{exact[key]:7}  {'=' if same else 'NOT'} {named or 'none'}")
    # Without any row there is no agreement.
    return differ if exact else 1


@dataclass(frozen=True)
class Counted:
    """Samples and instructions of several measurements, by row."""

    sampled: Counter[shares.Key]
    instructions: Counter[shares.Key]


def counts(group: Sequence[Seen], taxonomy: Taxonomy) -> Counted:
    """Return the sums over a group of measurements."""
    sampled, instructions = (Counter[shares.Key]() for _ in range(2))
    for case in group:
        sampled += shares.sampled(case.after["samples"], taxonomy)
        instructions += shares.counted(case.modelled.stacks, shares.Classifier(case.names, taxonomy))
    return Counted(sampled, instructions)


def check_shares(group: Sequence[Seen], taxonomy: Taxonomy) -> int:
    """Print each row with the error of its samples. Return the number of large rows with large errors."""
    sums = counts(group, taxonomy)
    rows = shares.compare(sums.sampled, sums.instructions)
    print(f"  {'':32}counted  sampled, 95 %             error, points")
    for row in rows:
        print(line(row))
    large = [row for row in rows if row.counted >= LARGE and row.key[2] != UNJUDGED]
    inside, off = sum(row.inside for row in large), sum(abs(row.error) > ERROR_MAX for row in large)
    print(
        f"  of {len(large)} rows of {LARGE:.0%} and more {inside} have the counted share in their interval,"
        f" {off} are off by more than {100 * ERROR_MAX:.0f} points"
    )
    # Without any row there is no agreement.
    return off if large else 1


def show_tiers(group: Sequence[Seen], taxonomy: Taxonomy) -> None:
    """Print shares of the exact tier, of samples and of instructions with and without our programs."""
    sums = counts(group, taxonomy)
    hits = shares.shares(shares.in_kernel(sums.sampled, without=("irq",)))
    # An instruction takes a nanosecond, so times of copies are shares of all instructions.
    kernel_times = shares.in_kernel(sum((shares.exact(case.before, case.after) for case in group), Counter()))
    exact = shares.shares_of(kernel_times, shares.in_kernel(sums.instructions, without=("irq",)))
    with_programs, without_programs = (
        shares.shares(shares.in_kernel(sums.instructions, without=without))
        for without in (("irq",), ("irq", "instruments"))
    )
    print("  of the kernel's part: exact tier | sampled | counted | counted without our programs")
    for key in sorted(
        {*exact, *with_programs}, key=lambda key: (shares.SIDES.index(key[0]), -with_programs.get(key, 0.0))
    ):
        cells = (
            f"{100 * shares_by_row.get(key, 0.0):6.2f}"
            for shares_by_row in (exact, hits, with_programs, without_programs)
        )
        print(f"  {' '.join(key):32}{' | '.join(cells)}")


def line(row: shares.Share) -> str:
    part, hit, low, high = (f"{100 * share:.2f}" for share in (row.counted, row.sampled, row.low, row.high))
    text = f"  {' '.join(row.key):32}{part:>7}{hit:>8} ({low} to {high})".ljust(66)
    return f"{text}{100 * row.error:+6.2f}{'' if row.inside else '  not inside'}"


def compare_calls(name: str) -> int:
    """Compare the calls in one boot, and return the number of rows that differ."""
    differ = 0
    try:
        for case in boot_beside(name, CALLS, exact=False, vcpus=2, say=print):
            print(f"Linux {name}, {case.case.impl}: calls by the exact tier, and entered")
            differ += check_calls(case)
    except RunError as error:
        print(f"Linux {name}: {error}")
        return 1
    return differ


def main(names: Iterable[str], *, brief: bool) -> int:
    """Return 1 if calls differ in two boots, or the share of a large row is wrong; else 0."""
    taxonomy, differ = Taxonomy.load(), 0
    for name in names or (kernels.DEFAULT,):
        differ += all(compare_calls(name) for _ in range(TRIES))
        every = () if brief else boot_beside(name, SHARES, exact=True, vcpus=1, say=print)
        for (impl, instruments), cases in groupby(
            every, key=lambda case: (case.case.impl, case.case.instruments)
        ):
            group = list(cases)
            print(f"Linux {name}, {impl}, {instruments}: share counted, and sampled")
            differ += check_shares(group, taxonomy) > 0
            if "functions" in instruments:
                show_tiers(group, taxonomy)
    return 1 if differ else 0


if __name__ == "__main__":
    arguments = sys.argv[1:]
    named = [word for word in arguments if word != "--brief"]
    sys.exit(main(named, brief=named != arguments))

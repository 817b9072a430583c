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
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import calls
import shares
from beside import Case, Seen, boot_beside
from copyscope.simulate import kernels
from copyscope.taxonomy.taxonomy import Taxonomy

HOOKED = "--functions --attach fentry --functions-gate 1"
CALLS = tuple(Case(impl, HOOKED, "functions", 0.2, 0.5) for impl in ("one_copy", "zero_copy"))
# Several frequencies: the guest repeats itself to the nanosecond, and a fixed period keeps step with it. The
# second group is what `--compare-tiers` does.
FREQUENCIES_HZ = (2801, 3491, 4409, 5237)
SHARES = tuple(
    Case(impl, f"{hooks}--frequency {hz}", instruments, 0, 0.15)
    for impl, hooks, instruments in (
        ("one_copy", "", "sampler"),
        ("zero_copy", f"{HOOKED} ", "functions,sampler-beside"),
    )
    for hz in FREQUENCIES_HZ
)
# Two processors of a guest go as fast as the host lets each: in one boot of some ten, one receive call of a
# hundred was in the hooks' counts alone (why is not known). What differs is looked at once more.
TRIES = 2
# A row that is no handful of samples.
LARGE = 0.05


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


def sampled(group: Sequence[Seen], taxonomy: Taxonomy) -> Counter[shares.Key]:
    return sum((shares.sampled(seen.after["samples"], taxonomy) for seen in group), Counter())


def counted(
    group: Sequence[Seen], taxonomy: Taxonomy, wanted: Callable[[shares.Path], bool]
) -> Counter[shares.Key]:
    found = (shares.modelled(seen.modelled.stacks, seen.names, taxonomy, wanted) for seen in group)
    return sum(found, Counter())


def is_visible(path: shares.Path) -> bool:
    return not shares.is_switch(path)


def show_shares(group: Sequence[Seen], taxonomy: Taxonomy) -> None:
    """A line for each row. Not judged: some lie outside, for reasons that docs/dev/notes.md has."""
    hits, visible = sampled(group, taxonomy), counted(group, taxonomy, is_visible)
    hidden = counted(group, taxonomy, shares.is_switch)
    for side in shares.SIDES:
        ours, switching = (sum(n for key, n in of.items() if key[0] == side) for of in (visible, hidden))
        arming = sum(n for key, n in hidden.items() if key[0] == side and key[2] == "instruments")
        parts = (f"{100 * count / (ours + switching):.1f} %" for count in (switching, arming))
        print(
            "  {}: {} of its instructions switch tasks, which no sample sees; {} arm timers".format(
                side, *parts
            )
        )
    rows = shares.compare(hits, visible)
    for row in rows:
        print(line(row))
    large = [row for row in rows if row.modelled >= LARGE]
    for of in (rows, large):
        print(f"  {sum(row.inside for row in of)} of {len(of)} in the interval of 95 %")


def show_tiers(group: Sequence[Seen], taxonomy: Taxonomy) -> None:
    """The exact tier, the samples beside it, and the truth: with the programs of the hooks, and without."""
    hits = shares.shares(shares.in_kernel(sampled(group, taxonomy), without=("irq",)))
    exact = shares.shares(
        shares.in_kernel(sum((shares.exact(seen.before, seen.after) for seen in group), Counter()))
    )
    visible = counted(group, taxonomy, is_visible)
    whole, bare = (
        shares.shares(shares.in_kernel(visible, without=without))
        for without in (("irq",), ("irq", "instruments"))
    )
    print("  of the kernel's part: exact tier | sampled | counted | counted without our programs")
    for key in sorted({*exact, *whole}, key=lambda key: (shares.SIDES.index(key[0]), -whole.get(key, 0.0))):
        cells = (f"{100 * of.get(key, 0.0):6.2f}" for of in (exact, hits, whole, bare))
        print(f"  {' '.join(key):32}{' | '.join(cells)}")


def line(row: shares.Share) -> str:
    part, hit, low, high = (f"{100 * share:.2f}" for share in (row.modelled, row.sampled, row.low, row.high))
    said = "" if row.inside else "NOT INSIDE"
    return f"  {' '.join(row.key):32}{part:>6} %  {hit:>6} ({low} to {high})  {said}"


def compare_calls(name: str) -> int:
    """One boot; how many rows differ."""
    differ = 0
    for seen in boot_beside(name, CALLS, exact=False, vcpus=2, say=print):
        print(f"Linux {name}, {seen.case.impl}: calls by the exact tier, and entered")
        differ += check_calls(seen)
    return differ


def main(names: Iterable[str], *, brief: bool) -> int:
    """Exit status: 1 when, in two boots, a call was counted by one of them only."""
    taxonomy, differ = Taxonomy.load(), 0
    for name in names or (kernels.DEFAULT,):
        differ += all(compare_calls(name) for _ in range(TRIES))
        every = () if brief else boot_beside(name, SHARES, exact=True, vcpus=1, say=print)
        for (impl, instruments), found in groupby(
            every, key=lambda seen: (seen.case.impl, seen.case.instruments)
        ):
            group = list(found)
            print(f"Linux {name}, {impl}, {instruments}: share counted, and sampled")
            show_shares(group, taxonomy)
            if "functions" in instruments:
                show_tiers(group, taxonomy)
    return 1 if differ else 0


if __name__ == "__main__":
    arguments = sys.argv[1:]
    named = [word for word in arguments if word != "--brief"]
    sys.exit(main(named, brief=named != arguments))

"""The instruments of copyscope against a machine in which every instruction is counted.

    make check-simulator                            Linux 6.12
    make check-simulator KERNELS="6.1 6.12 7.x"
    make check-simulator EXTENT=brief               calls only

calls: of the functions that the exact tier hooks, entered as the simulator saw it: equal, call by call.
shares: of each row of the ledger, by samples of the guest's timer and by counted instructions. There an
instruction takes a nanosecond, so that both are shares of the same. Each sample is an interrupt that the
simulator saw, and of each it says at which instruction it was due. So what is between the two shares has two
parts: the timer was due more often there than its share is (it keeps step with a guest that repeats itself),
and it came later than it was due (interrupts were off; or a task was switched).
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
FREQUENCIES_HZ = (2801, 3491, 4409, 5237)
SHARES = tuple(
    Case(impl, f"{hooks}--frequency {hz}", instruments, 0, 0.15, hz)
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
# Samples before counting begins and after it ends, and what is not known: 5 to 11 of 100.
UNSEEN_MAX = 0.15


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
    """The three counts of several measurements, and what came late."""

    sampled: Counter[shares.Key]
    met: Counter[shares.Key]
    due: Counter[shares.Key]
    instructions: Counter[shares.Key]
    switched: Counter[shares.Key]
    strange: int


def counts(group: Sequence[Seen], taxonomy: Taxonomy) -> Counted:
    """Of all of them together. The timers that sample must be those simulated: armed all the time."""
    sampled, met, due, instructions, switched = (Counter[shares.Key]() for _ in range(5))
    for seen in group:
        for side in shares.SIDES:
            burst = seen.after["sampler"]["bursts"][side]
            assert (burst["count"], burst["period_ns"]) == (1, seen.case.period_ns), f"{side}: {burst}"
        known, fires = shares.Classifier(seen.names, taxonomy), seen.modelled.fires
        sampled += shares.sampled(seen.after["samples"], taxonomy)
        met += shares.met(fires, known)
        due += shares.due(fires, known)
        instructions += shares.counted(seen.modelled.stacks, known)
        switched.update(shares.met(fires, known, shares.SWITCH))
        switched.subtract(shares.due(fires, known, shares.SWITCH))
    return Counted(sampled, met, due, instructions, switched, sum(seen.modelled.strange for seen in group))


def check_shares(group: Sequence[Seen], taxonomy: Taxonomy) -> int:
    """A line for each row, with what puts it beside what was counted; 1 if the samples are other interrupts.

    How far the shares are apart is said, with the cause, and not judged: a guest that repeats itself keeps
    step with a timer, which no machine does, and how late a sample comes is the kernel's.
    """
    found = counts(group, taxonomy)
    rows = shares.compare(found.sampled, found.due, found.instructions, found.switched)
    print(f"  {'':32}counted   due  sampled, 95 %            in step   masked   switch")
    for row in rows:
        print(line(row))
    for name, of in (("all", rows), ("large", [row for row in rows if row.counted >= LARGE])):
        inside, due_inside = sum(row.inside for row in of), sum(row.due_inside for row in of)
        print(
            f"  {name}: of {len(of)} rows {inside} have the counted share in the interval of samples,"
            f" {due_inside} in that of when they were due"
        )
    show_late(group, taxonomy)
    return check_interrupts(found)


def check_interrupts(found: Counted) -> int:
    """Whether each sample is an interrupt that the simulator saw, in the same row."""
    apart = {key: (found.sampled[key], found.met[key]) for key in {*found.sampled, *found.met}}
    for key, (sampled, met) in sorted(apart.items()):
        if sampled != met:
            print(f"  {' '.join(key):32}{sampled} samples, and {met} interrupts that the simulator saw")
    differ = sum(abs(sampled - met) for sampled, met in apart.values())
    samples = sum(found.sampled.values())
    holds = samples and differ <= UNSEEN_MAX * samples
    print(
        f"  {differ} of {samples} samples are not the interrupt that the simulator saw,"
        f" {found.strange} starts and stops of timers are not explained: {'=' if holds else 'NOT'}"
    )
    return 0 if holds else 1


def show_late(group: Sequence[Seen], taxonomy: Taxonomy) -> None:
    """Where interrupts were due, and what they met instead."""
    late = Counter[tuple[str, str, str, str]]()
    for seen in group:
        known = shares.Classifier(seen.names, taxonomy)
        for fire in seen.modelled.fires:
            if fire.side in shares.SIDES:
                place = (known.leaf(fire.due), known.leaf(fire.at)) if fire.late != "not" else ("", "")
                late[fire.side, fire.late, *place] += 1
    for (side, why, due, at), count in late.most_common(14):
        print(f"  {count:5} {side} {why}: {due} -> {at}")


def show_tiers(group: Sequence[Seen], taxonomy: Taxonomy) -> None:
    """The exact tier, samples of the same time, and the truth: with our programs, and without."""
    found = counts(group, taxonomy)
    hits = shares.shares(shares.in_kernel(found.sampled, without=("irq",)))
    exact = shares.shares(
        shares.in_kernel(sum((shares.exact(seen.before, seen.after) for seen in group), Counter()))
    )
    whole, bare = (
        shares.shares(shares.in_kernel(found.instructions, without=without))
        for without in (("irq",), ("irq", "instruments"))
    )
    print("  of the kernel's part: exact tier | sampled | counted | counted without our programs")
    for key in sorted({*exact, *whole}, key=lambda key: (shares.SIDES.index(key[0]), -whole.get(key, 0.0))):
        cells = (f"{100 * of.get(key, 0.0):6.2f}" for of in (exact, hits, whole, bare))
        print(f"  {' '.join(key):32}{' | '.join(cells)}")


def line(row: shares.Share) -> str:
    part, was_due, hit, low, high = (
        f"{100 * share:.2f}" for share in (row.counted, row.due, row.sampled, row.low, row.high)
    )
    causes = {"in step": row.in_step, "masked": row.late - row.switched, "switch": row.switched}
    points = "".join(f"{100 * share:+9.2f}" for share in causes.values())
    said = "" if row.inside else f"  not inside: {max(causes, key=lambda name: abs(causes[name]))}"
    return (
        f"  {' '.join(row.key):32}{part:>6}{was_due:>7}{hit:>7} ({low} to {high})".ljust(70) + points + said
    )


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
    """Exit status: 1 when calls differ in two boots, or samples are not the interrupts that were seen."""
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

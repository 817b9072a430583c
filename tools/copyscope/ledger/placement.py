"""Where the two sides ran, in words, and whether that is a caution. Pure."""

from collections.abc import Collection, Sequence
from itertools import pairwise

from msgspec import structs

from copyscope.grouping import grouped
from copyscope.record.derived import Placed
from copyscope.record.measured import Measured, Pinned

# What people call the cores of Intel's PMUs.
CORES = {"cpu_core": "P core", "cpu_atom": "E core", "cpu_lowpower": "LP-E core"}
# Longer lists are said as a number.
LIST_MAX = 14


def placed(raw: Measured) -> Placed | None:
    """What was recorded, and the sentence that the screen says of it; None of a watched program."""
    if not raw.placement:
        return None
    text, caution = sentence(raw.placement.sender, raw.placement.receiver)
    # Who asks for one CPU has asked for it.
    asked = raw.asked.placement == "same"
    return Placed(**structs.asdict(raw.placement), sentence=text, caution=caution and not asked)


def sentence(sender: Sequence[Pinned], receiver: Sequence[Pinned]) -> tuple[str, bool]:
    """What the CPUs of both sides have in common; True: they disturb each other, or are not alike."""
    if not sender and not receiver:
        return "sender and receiver on any CPU, as the scheduler chooses", False
    whose = f"sender {_cpus(sender)}, receiver {_cpus(receiver)}"
    theirs = {one.cpu for one in receiver}
    if any(one.cpu in theirs for one in sender):
        if sender == receiver:
            whose = f"sender and receiver on {_cpus(sender)}"
        return f"{whose}: they take turns", True
    both = [*sender, *receiver]
    cores = grouped(both, lambda one: one.core_cpus)
    if not sender or not receiver or None in cores:
        return whose, False
    kinds = grouped((some[0] for some in cores.values()), lambda one: one.core_type)
    shares = any(one.core_cpus in {other.core_cpus for other in receiver} for one in sender)
    if shares and len(cores) == 1:
        return f"{whose}: hyper-threads of one core", True
    what = _and([_counted(len(some), _called(kind)) for kind, some in kinds.items()])
    if shares:
        return f"{whose}: {what}, which they share", True
    if len(both) > len(cores):
        what = f"{len(both)} threads of {what}"
    return ", ".join([f"{whose}: {what}", *_caches(both), *_nodes(both)]), len(kinds) > 1


def _cpus(side: Sequence[Pinned]) -> str:
    """`CPU 2`, `CPUs 0-3,8`, `16 CPUs`."""
    if not side:
        return "on any CPU"
    numbers = sorted(one.cpu for one in side)
    if len(numbers) == 1:
        return f"CPU {numbers[0]}"
    starts = [0, *(at for at, (a, b) in enumerate(pairwise(numbers), 1) if b != a + 1), len(numbers)]
    spans = [(numbers[a], numbers[b - 1]) for a, b in pairwise(starts)]
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"CPUs {text}" if len(text) <= LIST_MAX else f"{len(numbers)} CPUs"


def _called(core_type: str | None) -> str:
    return "core" if core_type is None else CORES.get(core_type, f"core of {core_type}")


def _counted(count: int, name: str) -> str:
    """`an E core`, `two P cores`, `8 cores of capacity 1024`."""
    if count == 1:
        return f"{'an' if name[:2] in ('E ', 'LP') else 'a'} {name}"
    return f"{_number(count)} {name.replace('core', 'cores', 1)}"


def _caches(both: Sequence[Pinned]) -> list[str]:
    caches = {(one.llc_level, one.llc_cpus) for one in both}
    if any(None in one for one in caches):
        return []
    levels = {level for level, _ in caches}
    name = f"L{levels.pop()}" if len(levels) == 1 else "last-level cache"
    return [f"one {name}" if len(caches) == 1 else f"{_number(len(caches))} {name}s"]


def _nodes(both: Sequence[Pinned]) -> list[str]:
    nodes = {one.node for one in both}
    return [f"{_number(len(nodes))} NUMA nodes"] if len(nodes) > 1 else []


def _number(count: int) -> str:
    return "two" if count == 2 else str(count)


def _and(parts: Collection[str]) -> str:
    return " and ".join(parts)

"""On which CPUs the two sides run: on cores of their own, alike, and near each other. Pure.

Two threads of one core share its units and first caches, E cores are slower than P cores, and what another
node or last-level cache holds crosses to the reader: each of these changes what a copy costs.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from copyscope.grouping import grouped
from copyscope.machine.cores import Cpu
from copyscope.machine.cpu import parse_cpu_list

Placement = Literal["split", "same", "none"]
PLACEMENTS: tuple[Placement, ...] = ("split", "same", "none")
# CPU -> how busy it is.
Load = Mapping[int, int]
Sides = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Core:
    """`threads`: its CPUs that may be used. `busy`: also by work on its others."""

    threads: tuple[int, ...]
    cpu: Cpu
    busy: int


def place(placement: Placement, cpus: Sequence[Cpu], threads: tuple[int, int], load: Load) -> Sides:
    """The CPUs of the sender's and of the receiver's threads, by `split` or `same`."""
    if placement == "same" or len(cpus) == 1:
        return [cpus[0].number], [cpus[0].number]
    sender, receiver = split(cores_of(cpus, load), max(threads))
    return sender[: threads[0]], receiver[: threads[1]]


def beside(chosen: Collection[int], cpus: Sequence[Cpu], threads: int, load: Load) -> list[int]:
    """Where one side goes when the user has chosen the CPUs of the other: near, alike, not on its cores."""
    theirs = [cpu for cpu in cpus if cpu.number in chosen]
    rest = [cpu for cpu in cpus if cpu.number not in chosen] or theirs
    cores = cores_of(rest, load)

    def distance(core: Core) -> tuple[object, ...]:
        def is_new(name: str) -> bool:
            return getattr(core.cpu, name) not in {getattr(cpu, name) for cpu in theirs}

        unlike = tuple(is_new(name) for name in ("core_type", "node", "llc_cpus"))
        return not is_new("core_cpus"), *unlike, core.busy, core.threads

    return _threads(sorted(cores, key=distance))[:threads]


def cores_of(cpus: Sequence[Cpu], load: Load) -> list[Core]:
    return [
        Core(
            tuple(cpu.number for cpu in some),
            some[0],
            max(load.get(number, 0) for number in parse_cpu_list(text)),
        )
        for text, some in grouped(cpus, lambda cpu: cpu.core_cpus).items()
    ]


def split(cores: Sequence[Core], threads: int) -> Sides:
    """So many CPUs for each side, of the best kind of place that has them; where none has, fewer."""
    if len(cores) == 1:
        numbers = cores[0].threads
        return list(numbers[0::2][:threads]), list(numbers[1::2][:threads])
    for places, whole in _kinds(cores):
        dealt = [deal(some, threads, whole=whole) for some in places]
        enough = [sides for sides in dealt if min(map(len, sides.of)) == threads]
        if enough:
            return min(enough).of
    return deal(cores, threads, whole=False).of


def _kinds(cores: Sequence[Core]) -> Iterator[tuple[list[list[Core]], bool]]:
    """Places to choose from, and whether each thread is to have a core there; the best kind first.

    One cache is given up first, then a core for each thread, then one node, and at last one type.
    """
    for _, alike in sorted(grouped(cores, lambda core: core.cpu.rank).items()):
        nodes = list(grouped(alike, lambda core: core.cpu.node).values())
        yield list(grouped(alike, lambda core: (core.cpu.node, core.cpu.llc_cpus)).values()), True
        yield nodes, True
        yield nodes, False
        yield [alike], True
        yield [alike], False
    yield [list(cores)], True


@dataclass(frozen=True, order=True)
class Dealt:
    """What a place has for both sides; the least busy is the least."""

    busy: int
    of: Sides


def deal(cores: Sequence[Core], threads: int, *, whole: bool) -> Dealt:
    """The least busy cores, in turn to the sender and to the receiver: the i-th threads are neighbours."""
    quiet = sorted(cores, key=lambda core: (core.busy, core.threads))
    count = min(2 * threads, len(cores) // 2 * 2)
    chosen = sorted(quiet[:count], key=lambda core: (core.cpu.rank, core.threads))
    both = (chosen[0::2], chosen[1::2])
    sender, receiver = ([core.threads[0] for core in side] if whole else _threads(side) for side in both)
    return Dealt(sum(core.busy for core in chosen), (sender[:threads], receiver[:threads]))


def _threads(cores: Sequence[Core]) -> list[int]:
    """One of each core before a second of any."""
    most = max((len(core.threads) for core in cores), default=0)
    return [core.threads[turn] for turn in range(most) for core in cores if turn < len(core.threads)]

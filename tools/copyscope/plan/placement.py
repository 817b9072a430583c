# SPDX-License-Identifier: GPL-2.0-only
"""Choose the CPUs of sender and receiver: separate cores of the same type, near each other. Pure.

Two threads of one core share its units and first caches, E cores are slower than P cores, and data in the
cache of another node or last-level cache has to be transferred to the reader. Each effect changes the cost of
a copy.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from copyscope.base.spelling import parse_cpu_list
from copyscope.base.stats import grouped
from copyscope.machine.cores import OnlineCpu

Placement = Literal["split", "same", "none"]
PLACEMENTS: tuple[Placement, ...] = ("split", "same", "none")
# Load of each CPU in quarters of its time, by number of the CPU.
Load = Mapping[int, int]
# CPUs of the sender's and of the receiver's threads.
Sides = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Core:
    """A core. `threads`: usable CPUs of the core. `cpu`: one of them. `busy`: load of its busiest CPU."""

    threads: tuple[int, ...]
    cpu: OnlineCpu
    busy: int


def place_sides(
    placement: Placement, cpus: Sequence[OnlineCpu], threads: tuple[int, int], load: Load
) -> Sides:
    """Return the CPUs of the sender's and the receiver's threads, for the placement `split` or `same`.

    `cpus`: usable CPUs. `threads`: how many threads the sender and the receiver have.
    """
    if placement == "same" or len(cpus) == 1:
        return [cpus[0].number], [cpus[0].number]
    sender, receiver = split_cores(group_by_core(cpus, load), max(threads))
    return sender[: threads[0]], receiver[: threads[1]]


def place_beside(chosen: Collection[int], cpus: Sequence[OnlineCpu], threads: int, load: Load) -> list[int]:
    """Return CPUs for the threads of one side, near the CPUs that the user has chosen for the other side.

    Other cores of the same type are preferred. `chosen`: CPUs of the other side. `cpus`: usable CPUs.
    """
    other_cpus = [cpu for cpu in cpus if cpu.number in chosen]
    free_cpus = [cpu for cpu in cpus if cpu.number not in chosen] or other_cpus
    cores = group_by_core(free_cpus, load)

    def distance(core: Core) -> tuple[object, ...]:
        """Return a key that sorts cores by their distance from the chosen CPUs."""
        cpu = core.cpu
        return (
            any(cpu.core_cpus == other.core_cpus for other in other_cpus),
            all(cpu.core_type != other.core_type for other in other_cpus),
            all(cpu.node != other.node for other in other_cpus),
            all(cpu.llc_cpus != other.llc_cpus for other in other_cpus),
            core.busy,
            core.threads,
        )

    return _interleave_threads(sorted(cores, key=distance))[:threads]


def group_by_core(cpus: Sequence[OnlineCpu], load: Load) -> list[Core]:
    """Return the cores of some CPUs."""
    return [
        Core(
            tuple(cpu.number for cpu in siblings),
            siblings[0],
            max(load.get(number, 0) for number in parse_cpu_list(text)),
        )
        for text, siblings in grouped(cpus, lambda cpu: cpu.core_cpus).items()
    ]


def split_cores(cores: Sequence[Core], threads: int) -> Sides:
    """Return CPUs for sender and receiver, each with `threads` threads, from the best sufficient group.

    If no group has enough cores, the result has fewer CPUs.
    """
    if len(cores) == 1:
        numbers = cores[0].threads
        return list(numbers[0::2][:threads]), list(numbers[1::2][:threads])
    for groups, one_thread_per_core in _candidate_groups(cores):
        offers = [deal_cores(group, threads, one_thread_per_core=one_thread_per_core) for group in groups]
        sufficient = [offer for offer in offers if min(map(len, offer.sides)) == threads]
        if sufficient:
            return min(sufficient).sides
    return deal_cores(cores, threads, one_thread_per_core=False).sides


def _candidate_groups(cores: Sequence[Core]) -> Iterator[tuple[list[list[Core]], bool]]:
    """Yield lists of groups of cores, the best first, each with True if every thread gets its own core.

    Requirements are dropped in this order: one cache, a core per thread, one node, one core type.
    """
    for _, same_rank in sorted(grouped(cores, lambda core: core.cpu.rank).items()):
        nodes = list(grouped(same_rank, lambda core: core.cpu.node).values())
        yield list(grouped(same_rank, lambda core: (core.cpu.node, core.cpu.llc_cpus)).values()), True
        yield nodes, True
        yield nodes, False
        yield [same_rank], True
        yield [same_rank], False
    yield [list(cores)], True


@dataclass(frozen=True, order=True)
class Offer:
    """CPUs that a group of cores offers to sender and receiver. Offers are sorted by their load (`busy`)."""

    busy: int
    sides: Sides


def deal_cores(cores: Sequence[Core], threads: int, *, one_thread_per_core: bool) -> Offer:
    """Deal the least busy cores in turn to sender and receiver, so that their i-th threads are neighbors.

    `threads`: number of threads of each side. `one_thread_per_core`: use only the first CPU of a core.
    """
    by_load = sorted(cores, key=lambda core: (core.busy, core.threads))
    count = min(2 * threads, len(cores) // 2 * 2)
    chosen = sorted(by_load[:count], key=lambda core: (core.cpu.rank, core.threads))
    both = (chosen[0::2], chosen[1::2])
    sender, receiver = (
        [core.threads[0] for core in side] if one_thread_per_core else _interleave_threads(side)
        for side in both
    )
    return Offer(sum(core.busy for core in chosen), (sender[:threads], receiver[:threads]))


def _interleave_threads(cores: Sequence[Core]) -> list[int]:
    """Return the CPUs of the cores: the first CPU of every core, then the second CPU of every core, ..."""
    threads_max = max((len(core.threads) for core in cores), default=0)
    return [core.threads[turn] for turn in range(threads_max) for core in cores if turn < len(core.threads)]

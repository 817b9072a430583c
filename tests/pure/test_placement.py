# SPDX-License-Identifier: GPL-2.0-only
"""Placement of sender and receiver on known machines, and the sentences about it."""

import argparse
import io
import json
import os
import time
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import builders
import pytest
from builders import processors
from builders.documents import derive, typed_whole
from builders.processors import Machine, numbers_of, plant
from copyscope.ledger.machine_state import describe_placement
from copyscope.machine.cores import CPU_RECORD_KEYS, measure_busy_quarters, read_cpus
from copyscope.plan import options
from copyscope.plan.placement import place_beside, place_sides
from copyscope.plan.traffic_options import FACTORS
from copyscope.record.measured import Pinned
from copyscope.show import first_screen
from rich.console import Console

CpusOfSides = tuple[list[int], list[int]]
ALL_CPUS = range(1024)


Planted = Callable[[Machine], Path]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Return the folder with the files of a machine. Its hundreds of files are written only once."""
    folders: dict[str, Path] = {}

    def root(machine: Machine) -> Path:
        if repr(machine) not in folders:
            folders[repr(machine)] = plant(tmp_path_factory.mktemp("machine"), machine)
        return folders[repr(machine)]

    return root


def place_both(
    root: Path, threads: int = 1, allowed: Collection[int] = ALL_CPUS, load: Mapping[int, int] | None = None
) -> CpusOfSides:
    return place_sides("split", read_cpus(allowed, root), (threads, threads), load or {})


def describe(root: Path, sides: CpusOfSides, allowed: Collection[int] = ALL_CPUS) -> tuple[str, bool]:
    cpus = {cpu.number: cpu for cpu in read_cpus(allowed, root)}
    sender, receiver = (
        [Pinned(number, **{fact: getattr(cpus[number], fact) for fact in CPU_RECORD_KEYS}) for number in side]
        for side in sides
    )
    return describe_placement(sender, receiver)


@pytest.mark.parametrize(
    ("machine", "sender", "receiver", "words"),
    [
        (processors.DESKTOP_16, 0, 1, "two cores, one L3"),
        (processors.RYZEN_8, 0, 1, "two cores, one L3"),
        (processors.XEON_48, 0, 1, "two cores, one L3"),
        (processors.XEON_SNC2, 0, 1, "two cores, one L3"),
        (processors.EPYC_64, 0, 1, "two cores, one L3"),
        (processors.I7_1260P, 0, 2, "two P cores, one L3"),
        (processors.I7_13700H, 0, 2, "two P cores, one L3"),
        (processors.I9_13900K, 0, 2, "two P cores, one L3"),
        (processors.RK3588, 4, 5, "two cores of capacity 1024, one L3"),
        (processors.PHONE, 4, 5, "two cores of capacity 828, one L3"),
    ],
)
def test_single_threads_get_separate_cores(
    planted: Planted, machine: Machine, sender: int, receiver: int, words: str
) -> None:
    sides = place_both(planted(machine))
    assert sides == ([sender], [receiver])
    assert describe(planted(machine), sides) == (
        f"sender CPU {sender}, receiver CPU {receiver}: {words}",
        False,
    )


@pytest.mark.parametrize(
    ("machine", "threads", "sender", "receiver"),
    [
        # Whole cores before siblings, and the i-th threads of both sides next to each other.
        (processors.RYZEN_8, 4, "0,2,4,6", "1,3,5,7"),
        (processors.RYZEN_8, 6, "0,2,4,6,8,10", "1,3,5,7,9,11"),
        (processors.RYZEN_8, 8, "0,2,4,6,8,10,12,14", "1,3,5,7,9,11,13,15"),
        # An L3 has 8 cores. Ten threads exceed one L3, but each thread still gets its own core.
        (processors.DESKTOP_16, 4, "0,2,4,6", "1,3,5,7"),
        (processors.DESKTOP_16, 5, "0,2,4,6,8", "1,3,5,7,9"),
        (processors.EPYC_64, 4, "0,2,4,6", "1,3,5,7"),
        # A node has 24 cores. 28 threads use siblings there rather than cores of the other node.
        (processors.XEON_48, 12, "0,2,4,6,8,10,12,14,16,18,20,22", "1,3,5,7,9,11,13,15,17,19,21,23"),
        (
            processors.XEON_48,
            14,
            "0,2,4,6,8,10,12,14,16,18,20,22,48,50",
            "1,3,5,7,9,11,13,15,17,19,21,23,49,51",
        ),
        # Four P cores run eight threads. Ten threads use both types, in equal parts for sender and receiver.
        (processors.I7_1260P, 2, "0,4", "2,6"),
        (processors.I7_1260P, 4, "0,4,1,5", "2,6,3,7"),
        (processors.I7_1260P, 5, "0,4,8,10,12", "2,6,9,11,13"),
        # More threads than CPUs: sender and receiver get half of the CPUs each.
        (processors.RYZEN_8, 99, "0,2,4,6,8,10,12,14", "1,3,5,7,9,11,13,15"),
    ],
)
def test_more_threads_use_all_cores_before_siblings(
    planted: Planted, machine: Machine, threads: int, sender: str, receiver: str
) -> None:
    sides = place_both(planted(machine), threads)
    assert sides == tuple([int(cpu) for cpu in side.split(",")] for side in (sender, receiver))
    core_of = {cpu: core for core, siblings in enumerate(machine.cores) for cpu in siblings}
    assert not {core_of[cpu] for cpu in sides[0]} & {core_of[cpu] for cpu in sides[1]}


@pytest.mark.parametrize(
    ("machine", "allowed", "sides", "words"),
    [
        (processors.DESKTOP_16, "4-7", ([4], [5]), "sender CPU 4, receiver CPU 5: two cores, one L3"),
        (processors.DESKTOP_16, "7,8,23", ([7], [8]), "sender CPU 7, receiver CPU 8: two cores, two L3s"),
        # A single P core is too few for sender and receiver, so two equal E cores are used.
        (
            processors.I7_13700H,
            "0-1,12-19",
            ([12], [13]),
            "sender CPU 12, receiver CPU 13: two E cores, one L3",
        ),
    ],
)
def test_only_allowed_cpus_are_used(
    planted: Planted, machine: Machine, allowed: str, sides: CpusOfSides, words: str
) -> None:
    placed = place_both(planted(machine), 1, numbers_of(allowed))
    assert placed == sides and describe(planted(machine), placed) == (words, False)


@pytest.mark.parametrize(
    ("machine", "allowed", "sides", "words"),
    [
        (
            processors.DESKTOP_16,
            "3,19",
            ([3], [19]),
            "sender CPU 3, receiver CPU 19: hyper-threads of one core",
        ),
        (
            processors.I7_13700H,
            "0-1,12",
            ([0], [12]),
            "sender CPU 0, receiver CPU 12: a P core and an E core, one L3",
        ),
        (processors.RYZEN_8, "5", ([5], [5]), "sender and receiver on CPU 5: they take turns"),
        (
            processors.XEON_48,
            "5,53,30",
            ([5], [30]),
            "sender CPU 5, receiver CPU 30: two cores, two L3s, two NUMA nodes",
        ),
        (
            processors.XEON_SNC2,
            "5,30",
            ([5], [30]),
            "sender CPU 5, receiver CPU 30: two cores, one L3, two sub-NUMA clusters",
        ),
    ],
)
def test_poor_placement_gives_a_caution(
    planted: Planted, machine: Machine, allowed: str, sides: CpusOfSides, words: str
) -> None:
    placed = place_both(planted(machine), 1, numbers_of(allowed))
    assert placed == sides and describe(planted(machine), placed) == (words, True)


def test_offline_cpus_are_not_used(planted: Planted) -> None:
    """SMT is off and one core is offline, so the sibling lists lack these CPUs."""
    without_siblings = Machine(
        processors.DESKTOP_16.cores, processors.DESKTOP_16.caches, offline=(0, *range(16, 32))
    )
    assert place_both(planted(without_siblings)) == ([1], [2])
    assert place_both(planted(without_siblings), 8) == ([1, 3, 5, 7, 9, 11, 13], [2, 4, 6, 8, 10, 12, 14])
    laptop = processors.I7_13700H
    without_two_cores = Machine(laptop.cores, laptop.caches, pmus=laptop.pmus, offline=(0, 2))
    assert place_both(planted(without_two_cores)) == ([1], [3])


def test_without_topology_files_each_cpu_is_a_core(tmp_path: Path) -> None:
    assert place_sides("split", read_cpus({0, 1}, tmp_path), (1, 1), {}) == ([0], [1])
    (cpu,) = read_cpus({0}, tmp_path)
    assert (cpu.core_cpus, cpu.core_type, cpu.node, cpu.llc_cpus) == ("0", None, None, None)


@pytest.mark.parametrize(
    ("machine", "busy", "sides"),
    [
        (processors.RYZEN_8, {0: 4}, ([1], [2])),
        # The sibling of CPU 1 makes its core busy.
        (processors.RYZEN_8, {9: 2, 0: 4}, ([2], [3])),
        # The first of eight L3s has too few idle cores.
        (processors.EPYC_64, {0: 4, 1: 4, 66: 4}, ([4], [5])),
        (processors.XEON_48, dict.fromkeys(range(23), 4), ([24], [25])),
        # The type of core matters more than the load: a busy P core is still faster than an E core.
        (processors.I7_1260P, dict.fromkeys(range(8), 1), ([0], [2])),
    ],
)
def test_least_busy_cores_are_chosen(
    planted: Planted, machine: Machine, busy: dict[int, int], sides: CpusOfSides
) -> None:
    assert place_both(planted(machine), load=busy) == sides


def test_load_is_measured_from_proc_stat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In ten ticks CPU 0 is busy for nine, CPU 1 for two, and CPU 2 for three, with one tick in softirq."""
    stat = tmp_path / "proc/stat"
    stat.parent.mkdir()
    stat.write_text("cpu 0\ncpu0 5 0 0 100 0 0 0 0\ncpu1 5 0 0 100 0 0 0 0\ncpu2 5 0 0 100 0 0 0 0\n")

    def sleep(seconds: float) -> None:
        assert seconds <= 0.1
        stat.write_text("cpu 0\ncpu0 10 0 4 101 0 0 0 0\ncpu1 7 0 0 108 0 0 0 0\ncpu2 7 0 0 107 0 0 1 0\n")

    monkeypatch.setattr(time, "sleep", sleep)
    assert measure_busy_quarters(tmp_path) == {0: 3, 1: 0, 2: 1}
    assert measure_busy_quarters(tmp_path / "nothing") == {}


def test_the_unchosen_side_is_placed_near_the_chosen_cpus(planted: Planted) -> None:
    laptop = read_cpus(ALL_CPUS, planted(processors.I7_13700H))
    assert place_beside([2], laptop, 1, {}) == [0]
    assert place_beside([2], laptop, 1, {1: 4}) == [4]
    assert place_beside([12], laptop, 2, {}) == [13, 14]
    server = read_cpus(ALL_CPUS, planted(processors.EPYC_64))
    assert place_beside([33], server, 1, {}) == [32]
    assert place_beside([33, 97], server, 4, {}) == [32, 34, 35, 36]
    assert place_beside([5], read_cpus([5], planted(processors.EPYC_64)), 1, {}) == [5]


@pytest.mark.parametrize(
    ("sender", "receiver", "words", "caution"),
    [
        ("0", "16", "sender CPU 0, receiver CPU 16: a P core and an E core, one L3", True),
        ("0", "1", "sender CPU 0, receiver CPU 1: hyper-threads of one core", True),
        ("0,2", "1,3", "sender CPUs 0,2, receiver CPUs 1,3: two P cores, which they share", True),
        ("0-1", "2-3", "sender CPUs 0-1, receiver CPUs 2-3: 4 threads of two P cores, one L3", False),
        ("0,2,4", "16-18", "sender CPUs 0,2,4, receiver CPUs 16-18: 3 P cores and 3 E cores, one L3", True),
        ("0-31", "0-31", "sender and receiver on CPUs 0-31: they take turns", True),
        ("0,2,4,6,8,10,12", "14", "sender 7 CPUs, receiver CPU 14: 8 P cores, one L3", False),
        ("", "", "sender and receiver on any CPU, as the scheduler chooses", False),
        ("", "3", "sender on any CPU, receiver CPU 3", False),
    ],
)
def test_chosen_cpus_are_reported(
    planted: Planted, sender: str, receiver: str, words: str, caution: bool
) -> None:
    sides = tuple(sorted(numbers_of(text)) if text else [] for text in (sender, receiver))
    assert describe(planted(processors.I9_13900K), (sides[0], sides[1])) == (words, caution)


def test_record_has_cpu_core_type_node_and_cache() -> None:
    raw = builders.raw_record("one_copy")
    record = derive(raw)
    assert record["placement"]["sentence"] == "sender CPU 0, receiver CPU 1: two cores, one L3"
    assert record["placement"]["sender"] == raw["placement"]["sender"]
    assert (record["sides"]["sender"]["cpus"], record["sides"]["receiver"]["cpus"]) == ([0], [1])
    raw["placement"]["receiver"] = raw["placement"]["sender"]
    assert derive(raw)["placement"]["caution"]
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True, color_system=None)
    first_screen.render(typed_whole(derive(raw)), console)
    assert isinstance(console.file, io.StringIO)
    first = console.file.getvalue().splitlines()
    assert first[1] == "caution: sender and receiver on CPU 0: they take turns"
    assert len(first) <= 23 and max(map(len, first)) <= 80
    raw["workload"]["placement"] = "same"
    assert not derive(raw)["placement"]["caution"]
    del raw["placement"]
    older = derive(raw)
    assert "placement" not in older and older["sides"]["sender"]["cpus"] is None


def resolved(
    monkeypatch: pytest.MonkeyPatch, root: Path, sender: str = "threads", **given: Any
) -> options.TrafficOptions:
    """Return the resolved options on an invented machine, with two threads."""
    cpus = read_cpus(ALL_CPUS, root)
    monkeypatch.setattr(options, "read_cpus", lambda allowed: [cpu for cpu in cpus if cpu.number in allowed])
    monkeypatch.setattr(options, "measure_busy_quarters", dict)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(ALL_CPUS))
    checked: dict[str, Any] = {
        "sender": sender,
        "receiver": "read",
        "coalesce_us": 0,
        "touch_received": False,
    }
    checked |= {
        "rcvbuf_bytes": None,
        "moves": [],
        "size_bytes": 1,
        "fields": 1,
        "threads": 2,
        "working_set_messages": 1,
    }
    monkeypatch.setattr(options, "_check_by_traffic", lambda _: dict(checked))
    args = {"placement": "split", "sender_cpus": None, "receiver_cpus": None} | given
    return options.resolve_traffic(argparse.Namespace(**dict.fromkeys(FACTORS), **args))


def test_both_traffic_programs_get_their_cpus(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    def cpus(**given: Any) -> list[str | None]:
        traffic = resolved(monkeypatch, planted(processors.I7_13700H), **given)
        given_cpus = [dict(pairwise(argv)).get("--cpus") for argv in (traffic.send, traffic.receive)]
        recorded = [",".join(str(row["cpu"]) for row in side) or None for side in traffic.placement.values()]
        assert recorded == given_cpus
        json.dumps(traffic.placement)
        return given_cpus

    assert cpus() == ["0,4", "2,6"]
    assert cpus(placement="same") == ["0", "0"]
    assert cpus(placement="none") == [None, None]
    assert cpus(sender_cpus="2-3") == ["2,3", "0,4"]
    assert cpus(receiver_cpus="12", sender="loop") == ["13", "12"]
    assert cpus(sender_cpus="3", placement="same") == ["3", "3"]
    assert cpus(sender_cpus="3", placement="none") == ["3", None]
    assert cpus(sender_cpus="0", receiver_cpus="1") == ["0", "1"]

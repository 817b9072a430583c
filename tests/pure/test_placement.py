"""Where the two sides run on known machines, and what is said of it."""

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
from builders.processors import Machine, numbers_of, plant
from copyscope.ledger.derive import derive
from copyscope.ledger.machine_state import in_common
from copyscope.machine.cores import FACTS, look_at_load, read_cpus
from copyscope.plan import options
from copyscope.plan.placement import beside, place
from copyscope.record.check import typed_whole
from copyscope.record.measured import Pinned
from copyscope.show import first_screen
from rich.console import Console

Two = tuple[list[int], list[int]]
EVERY = range(1024)


Planted = Callable[[Machine], Path]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Where the files of a machine are: hundreds for each, written once."""
    made: dict[str, Path] = {}

    def root(machine: Machine) -> Path:
        if repr(machine) not in made:
            made[repr(machine)] = plant(tmp_path_factory.mktemp("machine"), machine)
        return made[repr(machine)]

    return root


def both(
    root: Path, threads: int = 1, allowed: Collection[int] = EVERY, load: Mapping[int, int] | None = None
) -> Two:
    return place("split", read_cpus(allowed, root), (threads, threads), load or {})


def said(root: Path, sides: Two, allowed: Collection[int] = EVERY) -> tuple[str, bool]:
    known = {cpu.number: cpu for cpu in read_cpus(allowed, root)}
    sender, receiver = (
        [Pinned(one, **{fact: getattr(known[one], fact) for fact in FACTS}) for one in side] for side in sides
    )
    return in_common(sender, receiver)


@pytest.mark.parametrize(
    ("machine", "sender", "receiver", "words"),
    [
        (processors.DESKTOP_16, 0, 1, "two cores, one L3"),
        (processors.RYZEN_8, 0, 1, "two cores, one L3"),
        (processors.XEON_48, 0, 1, "two cores, one L3"),
        (processors.EPYC_64, 0, 1, "two cores, one L3"),
        (processors.I7_1260P, 0, 2, "two P cores, one L3"),
        (processors.I7_13700H, 0, 2, "two P cores, one L3"),
        (processors.I9_13900K, 0, 2, "two P cores, one L3"),
        (processors.RK3588, 4, 5, "two cores of capacity 1024, one L3"),
        (processors.PHONE, 4, 5, "two cores of capacity 828, one L3"),
    ],
)
def test_one_thread_each_has_a_core_of_its_own(
    planted: Planted, machine: Machine, sender: int, receiver: int, words: str
) -> None:
    found = both(planted(machine))
    assert found == ([sender], [receiver])
    assert said(planted(machine), found) == (f"sender CPU {sender}, receiver CPU {receiver}: {words}", False)


@pytest.mark.parametrize(
    ("machine", "threads", "sender", "receiver"),
    [
        # Whole cores before siblings, and the i-th threads of both sides next to each other.
        (processors.RYZEN_8, 4, "0,2,4,6", "1,3,5,7"),
        (processors.RYZEN_8, 6, "0,2,4,6,8,10", "1,3,5,7,9,11"),
        (processors.RYZEN_8, 8, "0,2,4,6,8,10,12,14", "1,3,5,7,9,11,13,15"),
        # One L3 has 8 cores: of 10 threads there is no one cache, and still a core for each.
        (processors.DESKTOP_16, 4, "0,2,4,6", "1,3,5,7"),
        (processors.DESKTOP_16, 5, "0,2,4,6,8", "1,3,5,7,9"),
        (processors.EPYC_64, 4, "0,2,4,6", "1,3,5,7"),
        # A node has 24 cores: siblings there, and nothing on the other node.
        (processors.XEON_48, 12, "0,2,4,6,8,10,12,14,16,18,20,22", "1,3,5,7,9,11,13,15,17,19,21,23"),
        (
            processors.XEON_48,
            14,
            "0,2,4,6,8,10,12,14,16,18,20,22,48,50",
            "1,3,5,7,9,11,13,15,17,19,21,23,49,51",
        ),
        # Four P cores have eight threads; ten are on both types, alike on both sides.
        (processors.I7_1260P, 2, "0,4", "2,6"),
        (processors.I7_1260P, 4, "0,4,1,5", "2,6,3,7"),
        (processors.I7_1260P, 5, "0,4,8,10,12", "2,6,9,11,13"),
        # More threads than CPUs: each side has half of all.
        (processors.RYZEN_8, 99, "0,2,4,6,8,10,12,14", "1,3,5,7,9,11,13,15"),
    ],
)
def test_more_threads_fill_whole_cores_first(
    planted: Planted, machine: Machine, threads: int, sender: str, receiver: str
) -> None:
    found = both(planted(machine), threads)
    assert found == tuple([int(one) for one in side.split(",")] for side in (sender, receiver))
    core = {one: number for number, of in enumerate(machine.cores) for one in of}
    assert not {core[one] for one in found[0]} & {core[one] for one in found[1]}


@pytest.mark.parametrize(
    ("machine", "allowed", "sides", "words"),
    [
        (processors.DESKTOP_16, "4-7", ([4], [5]), "sender CPU 4, receiver CPU 5: two cores, one L3"),
        (processors.DESKTOP_16, "7,8,23", ([7], [8]), "sender CPU 7, receiver CPU 8: two cores, two L3s"),
        (
            processors.XEON_48,
            "5,53,30",
            ([5], [30]),
            "sender CPU 5, receiver CPU 30: two cores, two L3s, two NUMA nodes",
        ),
        # One P core is too few for both sides: two E cores, which are alike.
        (
            processors.I7_13700H,
            "0-1,12-19",
            ([12], [13]),
            "sender CPU 12, receiver CPU 13: two E cores, one L3",
        ),
    ],
)
def test_in_a_container_it_is_what_is_allowed(
    planted: Planted, machine: Machine, allowed: str, sides: Two, words: str
) -> None:
    found = both(planted(machine), 1, numbers_of(allowed))
    assert found == sides and said(planted(machine), found) == (words, False)


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
    ],
)
def test_where_there_is_nothing_good_it_is_a_caution(
    planted: Planted, machine: Machine, allowed: str, sides: Two, words: str
) -> None:
    found = both(planted(machine), 1, numbers_of(allowed))
    assert found == sides and said(planted(machine), found) == (words, True)


def test_what_is_offline_is_not_used(planted: Planted) -> None:
    """SMT off, and a core that somebody took out; its sibling lists lack it."""
    off = Machine(processors.DESKTOP_16.cores, processors.DESKTOP_16.caches, offline=(0, *range(16, 32)))
    assert both(planted(off)) == ([1], [2])
    assert both(planted(off), 8) == ([1, 3, 5, 7, 9, 11, 13], [2, 4, 6, 8, 10, 12, 14])
    laptop = processors.I7_13700H
    one = Machine(laptop.cores, laptop.caches, pmus=laptop.pmus, offline=(0, 2))
    assert both(planted(one)) == ([1], [3])


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    assert place("split", read_cpus({0, 1}, tmp_path), (1, 1), {}) == ([0], [1])
    (found,) = read_cpus({0}, tmp_path)
    assert (found.core_cpus, found.core_type, found.node, found.llc_cpus) == ("0", None, None, None)


@pytest.mark.parametrize(
    ("machine", "busy", "sides"),
    [
        (processors.RYZEN_8, {0: 4}, ([1], [2])),
        # The sibling of CPU 1 makes its core busy.
        (processors.RYZEN_8, {9: 2, 0: 4}, ([2], [3])),
        # Of eight L3s the first is quiet enough no more.
        (processors.EPYC_64, {0: 4, 1: 4, 66: 4}, ([4], [5])),
        (processors.XEON_48, dict.fromkeys(range(23), 4), ([24], [25])),
        # Type comes before load: E cores are slower than busy P cores are late.
        (processors.I7_1260P, dict.fromkeys(range(8), 1), ([0], [2])),
    ],
)
def test_the_least_busy_cores_are_taken(
    planted: Planted, machine: Machine, busy: dict[int, int], sides: Two
) -> None:
    assert both(planted(machine), load=busy) == sides


def test_busy_is_what_a_moment_of_proc_stat_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten ticks: CPU 0 was busy in nine of them, CPU 1 in two, CPU 2 in three of which one was a softirq."""
    stat = tmp_path / "proc/stat"
    stat.parent.mkdir()
    stat.write_text("cpu 0\ncpu0 5 0 0 100 0 0 0 0\ncpu1 5 0 0 100 0 0 0 0\ncpu2 5 0 0 100 0 0 0 0\n")

    def later(seconds: float) -> None:
        assert seconds <= 0.1
        stat.write_text("cpu 0\ncpu0 10 0 4 101 0 0 0 0\ncpu1 7 0 0 108 0 0 0 0\ncpu2 7 0 0 107 0 0 1 0\n")

    monkeypatch.setattr(time, "sleep", later)
    assert look_at_load(tmp_path) == {0: 3, 1: 0, 2: 1}
    assert look_at_load(tmp_path / "nothing") == {}


def test_the_other_side_is_near_the_one_that_was_chosen(planted: Planted) -> None:
    laptop = read_cpus(EVERY, planted(processors.I7_13700H))
    assert beside([2], laptop, 1, {}) == [0]
    assert beside([2], laptop, 1, {1: 4}) == [4]
    assert beside([12], laptop, 2, {}) == [13, 14]
    server = read_cpus(EVERY, planted(processors.EPYC_64))
    assert beside([33], server, 1, {}) == [32]
    assert beside([33, 97], server, 4, {}) == [32, 34, 35, 36]
    assert beside([5], read_cpus([5], planted(processors.EPYC_64)), 1, {}) == [5]


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
def test_what_the_user_chose_is_said(
    planted: Planted, sender: str, receiver: str, words: str, caution: bool
) -> None:
    sides = tuple(sorted(numbers_of(text)) if text else [] for text in (sender, receiver))
    assert said(planted(processors.I9_13900K), (sides[0], sides[1])) == (words, caution)


def test_a_record_names_cpu_core_type_node_and_cache() -> None:
    raw = builders.raw_record("one_copy")
    made = derive(raw)
    assert made["placement"]["sentence"] == "sender CPU 0, receiver CPU 1: two cores, one L3"
    assert made["placement"]["sender"] == raw["placement"]["sender"]
    assert (made["sides"]["sender"]["cpus"], made["sides"]["receiver"]["cpus"]) == ([0], [1])
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
    old = derive(raw)
    assert "placement" not in old and old["sides"]["sender"]["cpus"] is None


def resolved(
    monkeypatch: pytest.MonkeyPatch, root: Path, sender: str = "threads", **given: Any
) -> options.Traffic:
    """What becomes of options on a made-up machine, with two threads."""
    known = read_cpus(EVERY, root)
    monkeypatch.setattr(options, "read_cpus", lambda allowed: [one for one in known if one.number in allowed])
    monkeypatch.setattr(options, "look_at_load", dict)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(EVERY))
    says: dict[str, Any] = {"sender": sender, "receiver": "read", "coalesce_us": 0, "touch_received": False}
    says |= {
        "rcvbuf_bytes": None,
        "moves": [],
        "size_bytes": 1,
        "fields": 1,
        "threads": 2,
        "working_set_messages": 1,
    }
    monkeypatch.setattr(options, "_ask_traffic", lambda _: dict(says))
    args = {"placement": "split", "sender_cpus": None, "receiver_cpus": None} | given
    names = {*options.TO_BOTH, *options.TO_SENDER, *options.TO_RECEIVER}
    return options.resolve_traffic(argparse.Namespace(**dict.fromkeys(names), **args))


def test_both_programs_are_told_their_cpus(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    def cpus(**given: Any) -> list[str | None]:
        made = resolved(monkeypatch, planted(processors.I7_13700H), **given)
        told = [dict(pairwise(argv)).get("--cpus") for argv in (made.send, made.receive)]
        recorded = [",".join(str(row["cpu"]) for row in side) or None for side in made.placement.values()]
        assert recorded == told
        json.dumps(made.placement)
        return told

    assert cpus() == ["0,4", "2,6"]
    assert cpus(placement="same") == ["0", "0"]
    assert cpus(placement="none") == [None, None]
    assert cpus(sender_cpus="2-3") == ["2,3", "0,4"]
    assert cpus(receiver_cpus="12", sender="loop") == ["13", "12"]
    assert cpus(sender_cpus="3", placement="same") == ["3", "3"]
    assert cpus(sender_cpus="3", placement="none") == ["3", None]
    assert cpus(sender_cpus="0", receiver_cpus="1") == ["0", "1"]

# SPDX-License-Identifier: GPL-2.0-only
"""Stand-ins: which traffic stands for a program, and what its runs say about a remedy."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from builders import sweep as sweeps
from builders.advised import with_advice
from builders.documents import derive, typed_whole
from builders.samples import move_samples
from builders.watched import watched_record
from copyscope.base import paths
from copyscope.commands import kept_results, stand_in
from copyscope.judge.advice import stand_in_plan, with_stand_in
from copyscope.judge.evidence import Evidence
from copyscope.judge.stand_in import StandInPlan, plan_of
from copyscope.record.portrait import Saving, StandIn
from copyscope.record.run import Run
from copyscope.sweep.experiment import expand, load

Record = dict[str, Any]

REFERENCE = paths.RESULTS


def advised(raw: Record) -> Run:
    return typed_whole(with_advice(raw))


def first_stand_in(raw: Record) -> StandInPlan:
    return stand_in_plan(advised(raw)) or pytest.fail("no stand-in")


def stand_in_of(remedy: str, raw: Record) -> StandInPlan:
    return plan_of(Evidence(advised(raw)), remedy) or pytest.fail(f"{remedy}: no stand-in")


def points(plan: StandInPlan, directory: Path) -> list[Record]:
    """Return the settings that the sweep of a stand-in would run."""
    file = directory / "stand-in.toml"
    file.write_text(plan.experiment())
    assert set(tomllib.loads(plan.experiment())["factors"]) == plan.before.keys()
    experiment = load(file)
    runs = expand(experiment)
    # The two settings take turns: each block has a run of each.
    blocks = [{str(run.factors) for run in runs if run.repeat == repeat} for repeat in range(7)]
    assert len(runs) == 14 and all(len(block) == 2 for block in blocks)
    return [dict(experiment.fixed) | dict(run.factors) for run in runs[:2]]


def test_small_sends_are_measured_at_both_sizes(tmp_path: Path) -> None:
    plan = first_stand_in(watched_record(size=5))
    settings = points(plan, tmp_path)
    assert {row["size"] for row in settings} == {5, 65_536}
    assert {(row["impl"], row["topology"], row["threads"], row["fields"]) for row in settings} == {
        ("one_copy", "veth", 1, 1)
    }
    assert plan.describe() == "5 B against 64 KiB; one_copy, 1 thread, veth"


def test_relays_and_readers_of_files_are_measured_with_and_without_copies(tmp_path: Path) -> None:
    relay = watched_record(receives=65_536)
    relay["relays"] = {"threads": 1, "received_bytes": 1 << 31, "sent_bytes": 1 << 31}
    assert {row["impl"] for row in points(first_stand_in(relay), tmp_path)} == {"relay_copy", "relay_splice"}
    reader = move_samples(watched_record(size=65_536), "file_read", "filemap_read", kind="account")
    assert {row["impl"] for row in points(first_stand_in(reader), tmp_path)} == {"two_copy", "sendfile"}


def test_sendfile_sends_larger_pieces_than_the_reads_of_the_program(tmp_path: Path) -> None:
    reader = move_samples(watched_record(size=8_192), "file_read", "filemap_read", kind="account")
    settings = points(first_stand_in(reader), tmp_path)
    assert {(row["impl"], row["size"]) for row in settings} == {("two_copy", 8_200), ("sendfile", 65_536)}


def test_own_copies_are_measured_with_and_without_a_memcpy(tmp_path: Path) -> None:
    settings = points(stand_in_of("fewer user copies", watched_record(size=8192)), tmp_path)
    assert {(row["impl"], row["size"], row["fields"]) for row in settings} == {
        ("two_copy", 8_200, 2),
        ("one_copy", 8_200, 2),
    }


def test_sends_through_io_uring_have_the_size_of_the_program(tmp_path: Path) -> None:
    settings = points(stand_in_of("io_uring", watched_record(size=5)), tmp_path)
    assert {(row["impl"], row["size"]) for row in settings} == {("one_copy", 5), ("uring_send", 5)}


def test_larger_sends_of_a_relay_are_measured_with_a_relay(tmp_path: Path) -> None:
    relay = watched_record(size=4096, receives=4096)
    relay["relays"] = {"threads": 1, "received_bytes": 1 << 30, "sent_bytes": 1 << 30}
    settings = points(stand_in_of("larger sends", relay), tmp_path)
    assert {(row["impl"], row["size"]) for row in settings} == {
        ("relay_copy", 4_100),
        ("relay_copy", 65_536),
    }


def test_saving_has_the_interval_of_the_saving() -> None:
    """One-copy costs the sender 3,941 to 4,665 ns/KiB at 1 KiB, and 232 to 251 at 64 KiB: 94 to 95 % less."""
    runs = [
        typed_whole(derive(run))
        for run in sweeps.kept(paths.RESULTS / "vm" / "ways")
        if run["workload"]["impl"] == "one_copy"
        and run["workload"]["threads"] == 1
        and run["workload"]["size_bytes"] in (1024, 65_536)
    ]
    plan = StandInPlan("larger sends", {"size": 1024}, {"size": 65_536}, {"topology": "veth", "threads": 1})
    result = plan.result(runs) or pytest.fail("no result")
    assert result.saves.share == pytest.approx(0.944, abs=0.005)
    assert result.saves.low < result.saves.share < result.saves.high < 1.0


@pytest.mark.parametrize(
    ("saves", "words"),
    [
        ((0.97, 0.96, 0.98), "larger sends saved 97.0 % (96.0 to 98.0) of CPU time per byte."),
        ((-0.2, -0.3, -0.1), "larger sends added 20.0 % (10.0 to 30.0) of CPU time per byte."),
        (
            (0.01, -0.02, 0.04),
            "larger sends made no clear difference: 2.0 % more to 4.0 % less CPU time per byte.",
        ),
    ],
)
def test_answer_names_the_traffic_of_the_stand_in(saves: tuple[float, float, float], words: str) -> None:
    run = advised(watched_record(size=5))
    assert run.derived.advice is not None
    result = StandIn("larger sends", "5 B against 64 KiB; one_copy, 1 thread, veth", Saving(*saves))
    answer = with_stand_in(run.derived.advice, result).answer
    assert answer is not None and answer.endswith(
        f"In copyscope's own traffic (5 B against 64 KiB; one_copy, 1 thread, veth), {words}"
    )


def test_kept_runs_are_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records in the directory of the stand-in are its result, without a measurement."""
    run = advised(watched_record(size=5))
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    plan = StandInPlan("larger sends", {"size": 1024}, {"size": 65_536}, {"topology": "veth", "threads": 1})
    assert not stand_in.add_kept(plan, run)
    ways = sweeps.kept(REFERENCE / "vm" / "ways")
    one_copy = [
        row for row in ways if row["workload"]["impl"] == "one_copy" and row["workload"]["threads"] == 1
    ]
    sweeps.store(one_copy, kept_results.stand_in_directory(plan, run))
    assert stand_in.add_kept(plan, run) and run.derived.advice is not None
    assert run.derived.advice.stand_in is not None
    assert run.derived.advice.stand_in.saves.share == pytest.approx(0.944, abs=0.005)

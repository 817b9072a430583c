# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope compare` with invented runs: their order, the verdict, and the saved files."""

import errno
import json
import os
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders.documents import typed_whole
from builders.sweep import run_record
from copyscope.base import files, paths
from copyscope.base.errors import RunError
from copyscope.commands import compare
from copyscope.judge.comparison_sentences import Ranked, ranking_sentences
from copyscope.judge.difference import UNSURE, WORSE, DifferenceRow
from copyscope.record import store
from copyscope.record.assemble import RecordIdentity
from copyscope.record.run import Run
from copyscope.sweep.runner import Prepared

Record = dict[str, Any]
RUNS = {
    impl: run_record({"impl": impl, "size": 262_144, "threads": 1}, 0, 0)
    for impl in ("one_copy", "zero_copy")
}


class Machine:
    """A machine that returns invented runs with a given goodput per strategy, and records their order."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.goodput = {"one_copy": 100.0, "zero_copy": 80.0}
        self.runs = RUNS
        self.noise = 0.0  # by which every other run is faster
        self.invalid: set[int] = set()
        self.ends: BaseException | None = None  # raised in the seventh run

    def prepare(self, args: Any) -> Prepared:
        def run(identity: RecordIdentity) -> Run:
            if self.ends is not None and len(self.order) == 6:
                raise self.ends
            record = deepcopy(self.runs[args.impl])
            record["run"] |= {"id": identity.id, "repeat": identity.repeat, "order": identity.order}
            drift = 1 + identity.repeat / 1000 + self.noise * (identity.order % 2)
            record["throughput_gbps"]["unprobed"] = self.goodput[args.impl] * drift
            if identity.order in self.invalid:
                record["verdict"] |= {"valid": False, "reasons": ["identity bytes: 1 is not 2"]}
            self.order.append(args.impl)
            return typed_whole(record)

        traffic = SimpleNamespace(resolved={"impl": args.impl, "size": args.size})
        return SimpleNamespace(run=run, traffic=traffic)  # type: ignore[return-value]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    invented = Machine()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("copyscope.commands.entry.build_if_stale", lambda *_: None)
    monkeypatch.setattr("copyscope.commands.entry.check_pid_namespace", lambda: None)
    monkeypatch.setattr(compare, "git_revision", lambda: (None, None))
    monkeypatch.setattr(compare, "prepare", invented.prepare)
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    return invented


def test_two_strategies_run_in_blocks_of_random_order(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["one_copy", "zero_copy", "--size", "256K", "--repeat", "8", "--seed", "1", "--json", "-"]
    assert compare.main([*words, "--out", str(tmp_path / "out")]) == 0
    blocks = [tuple(machine.order[at : at + 2]) for at in range(0, 16, 2)]
    assert set(blocks) == {("one_copy", "zero_copy"), ("zero_copy", "one_copy")}
    document = json.loads(capsys.readouterr().out)
    row = document["points"][0]["rows"][0]
    assert (document["kind"], document["verdict"]) == ("compare", "worse")
    assert document["names"] == ["one_copy", "zero_copy"]
    # The ratio is the same in each block, although both strategies drift.
    assert (row["what"], round(row["low"], 6), round(row["high"], 6)) == ("goodput", -0.2, -0.2)
    assert document["points"][0]["setting"]["size"] == 262_144
    assert {path.name: len(store.read_lines(path)) for path in (tmp_path / "out").iterdir()} == {
        "1-one_copy.jsonl.gz": 8,
        "2-zero_copy.jsonl.gz": 8,
    }


@pytest.mark.usefixtures("machine")
def test_table_names_both_strategies(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main(["zero_copy", "one_copy", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert "one_copy has 25 % more goodput than zero_copy (+25 %): better." in " ".join(out.split())
    assert any("zero_copy one_copy change verdict" in " ".join(line.split()) for line in out.splitlines())


def test_block_with_an_invalid_run_is_left_out(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.invalid = {3}
    assert compare.main(["one_copy", "zero_copy", "--quiet", "--json", "-"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["points"][0]["runs"] == [20, 20]
    assert "a block is left out, because a run in it is invalid: identity bytes: 1 is not 2" in printed.err


def test_unclear_verdict_doubles_the_number_of_blocks(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    as_dear = deepcopy(RUNS["one_copy"])
    as_dear["workload"]["impl"] = "zero_copy"
    machine.runs = {**RUNS, "zero_copy": as_dear}
    machine.noise = 0.8
    assert compare.main(["one_copy", "zero_copy", "--seed", "1", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["points"][0]["runs"] == [42, 42]
    machine.noise = 0.0
    assert compare.main(["one_copy", "zero_copy", "--seed", "1", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["points"][0]["runs"] == [21, 21]
    machine.noise = 0.8
    assert compare.main(["one_copy", "zero_copy", "--seed", "1", "--repeat", "21", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["points"][0]["runs"] == [21, 21]


@pytest.mark.parametrize(
    ("ends", "status", "message"),
    [
        (RunError("sender: was killed by SIGKILL"), 1, "block 4 of 21: sender: was killed by SIGKILL"),
        (KeyboardInterrupt(), 130, "interrupted in block 4 of 21"),
    ],
)
def test_finished_blocks_are_compared_after_a_failure_or_ctrl_c(
    ends: BaseException, status: int, message: str, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.ends = ends
    assert compare.main(["one_copy", "zero_copy", "--quiet", "--json", "-"]) == status
    shown = capsys.readouterr()
    assert json.loads(shown.out)["points"][0]["runs"] == [3, 3]
    assert message in shown.err


def test_run_is_saved_in_another_directory_if_the_disk_is_full(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spare, write = tmp_path / "spare", files.save
    spare.mkdir()

    def full(path: Path, data: bytes, mode: int = 0o644) -> None:
        if path.is_relative_to(tmp_path / "out") and len(machine.order) == 7:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, data, mode)

    monkeypatch.setattr(files, "save", full)
    monkeypatch.setattr("tempfile.tempdir", str(spare))
    out = str(tmp_path / "out")
    assert compare.main(["one_copy", "zero_copy", "--quiet", "--out", out, "--json", "-"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["points"][0]["runs"] == [3, 3]
    assert "No space left on device" in shown.err and "the measurement is saved in" in shown.err
    (kept,) = spare.glob("*/*.json.gz")
    assert store.read_document(kept)["run"]["repeat"] == 3


@pytest.mark.usefixtures("machine")
def test_comparison_with_itself_measures_the_noise_of_this_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main(["one_copy", "one_copy", "--quiet"]) == 0
    (kept,) = (tmp_path / "results").glob("*/noise.json")
    noise = json.loads(kept.read_text())
    assert noise["metrics"]["goodput_gbps"] == 0
    kept.write_text(json.dumps(noise | {"metrics": {"goodput_gbps": 1.2, "cpu_ns_per_kib": 1.2}}))
    capsys.readouterr()
    assert compare.main(["one_copy", "zero_copy", "--quiet", "--json", "-"]) == 0
    row = json.loads(capsys.readouterr().out)["points"][0]["rows"][0]
    # The threshold is for means of 21 runs: 1.2 / sqrt(21).
    assert (round(row["threshold"], 4), row["verdict"]) == (0.2619, "no difference")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["one_copy"], "one_copy: only one strategy; give two or more"),
        (["one_copy", "zero_copy", "--repeat", "1"], "--repeat 1: one run cannot show run-to-run noise"),
        (["one_copy", ""], "'': an empty strategy; give one"),
        (["one_copy", "zero_copy '"], "No closing quotation; quote it as for a shell"),
        (
            ["one_copy", "zero_copy", "--keep", "x"],
            "copyscope compare: --keep: only for single runs; use copyscope run",
        ),
        (
            ["one_copy", "zero_copy", "--json", "-", "--markdown", "-"],
            "--markdown -: stdout is used by --json -",
        ),
        (
            ["one_copy", "zero_copy", "--noise", "/no/such"],
            "/no/such: No such file or directory; `compare A A",
        ),
        (["one_copy", "zero_copy", "--noise", "/etc/passwd"], "/etc/passwd: not JSON"),
        (
            ["one_copy", "zero_copy --stacks"],
            "copyscope compare: --stacks: only for single runs; use",
        ),
        (
            ["one_copy", "zero_copy --repeat 3"],
            "--repeat is an option of compare; write",
        ),
    ],
)
def test_wrong_usage(
    machine: Machine, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert compare.main(words) == 2
    # The error is found before the first run.
    assert message in capsys.readouterr().err and machine.order == []


def test_figures_before_and_after_agree_with_the_change(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.noise = 0.4
    assert compare.main(["one_copy", "zero_copy", "--seed", "3", "--repeat", "9", "--json", "-"]) == 0
    for row in json.loads(capsys.readouterr().out)["points"][0]["rows"]:
        if row["base"] == "itself" and row["change"] is not None and row["before"]:
            assert row["after"] / row["before"] == pytest.approx(1 + row["change"])


def test_three_strategies_are_ranked(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.goodput |= {"sendfile": 100.0}
    machine.runs = {**RUNS, "sendfile": deepcopy(RUNS["one_copy"])}
    words = ["zero_copy", "one_copy", "sendfile", "--repeat", "6", "--seed", "1", "--quiet"]
    assert compare.main(words) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith(
        "Goodput, the fastest first: one_copy 100 Gb/s, sendfile 100 Gb/s "
        "(no difference found from one_copy), zero_copy 80.2 Gb/s. "
        "CPU time against zero_copy: one_copy -17 % (-17 %): better; sendfile -17 %"
    )
    assert "not clear" not in text.partition("RANKING")[0]
    assert len(machine.order) == 18 and set(machine.order[:3]) == {"zero_copy", "one_copy", "sendfile"}
    assert compare.main([*words, "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in document["ranking"]][2] == "zero_copy"
    assert document["judged"] == {"one_copy": "better", "sendfile": "better"}


def test_a_ranking_claims_no_order_that_its_interval_does_not_show() -> None:
    """The intervals lie beyond the threshold, reach below the threshold, and contain no change."""
    notes = []
    for low, high, verdict in ((-0.3, -0.1, WORSE), (-0.2, -0.01, UNSURE), (-0.2, 0.3, UNSURE)):
        change = DifferenceRow(
            "goodput", None, "Gb/s", 10.0, 9.0, change=-0.1, low=low, high=high, threshold=0.02
        )
        row = Ranked("next", 9.0, 100.0, "above", replace(change, verdict=verdict, decides=True))
        text = ranking_sentences([Ranked("above", 10.0, 100.0), row], "above")
        notes.append(text.partition("next 9.00 Gb/s")[2].partition(". CPU")[0])
    assert notes == ["", " (perhaps within 2 % of above)", " (no difference found from above)"]


@pytest.mark.usefixtures("machine")
def test_fail_if_worse_sets_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--repeat", "6", "--quiet", "--fail-if", "worse"]
    assert compare.main(["one_copy", "zero_copy", *words]) == 1
    assert compare.main(["zero_copy", "one_copy", *words]) == 0
    assert capsys.readouterr().out.startswith("zero_copy costs 21 % more CPU time than one_copy (")

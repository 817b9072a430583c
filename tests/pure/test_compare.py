"""copyscope compare: the order of the runs, what counts, and what is left behind; the runs are invented."""

import errno
import json
import os
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders.sweep import one
from copyscope import paths
from copyscope.commands import compare
from copyscope.errors import RunError
from copyscope.files import saving
from copyscope.record import records_file, store
from copyscope.record.assemble import Identity
from copyscope.sweep.runner import Prepared

Record = dict[str, Any]
RUNS = {impl: one({"impl": impl, "size": 262_144, "threads": 1}, 0, 0) for impl in ("one_copy", "zero_copy")}


class Machine:
    """Runs what is asked, with the goodput that a strategy has here, and remembers the order."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.goodput = {"one_copy": 100.0, "zero_copy": 80.0}
        self.runs = RUNS
        self.noise = 0.0  # every other run is so much faster
        self.invalid: set[int] = set()
        self.ends: BaseException | None = None  # in the seventh run

    def prepare(self, args: Any) -> Prepared:
        def run(identity: Identity) -> Record:
            if self.ends is not None and len(self.order) == 6:
                raise self.ends
            made = deepcopy(self.runs[args.impl])
            made["run"] |= {"id": identity.id, "repeat": identity.repeat, "order": identity.order}
            drift = 1 + identity.repeat / 1000 + self.noise * (identity.order % 2)
            made["throughput_gbps"]["unprobed"] = self.goodput[args.impl] * drift
            if identity.order in self.invalid:
                made["verdict"] |= {"valid": False, "reasons": ["identity bytes: 1 is not 2"]}
            self.order.append(args.impl)
            return made

        traffic = SimpleNamespace(resolved={"impl": args.impl, "size": args.size})
        return SimpleNamespace(run=run, traffic=traffic)  # type: ignore[return-value]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    made = Machine()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("copyscope.commands.entry.build_if_stale", lambda *_: None)
    monkeypatch.setattr("copyscope.commands.entry.check_pid_namespace", lambda: None)
    monkeypatch.setattr(compare, "git_revision", lambda: (None, None))
    monkeypatch.setattr(compare, "prepare", made.prepare)
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    return made


def test_two_strategies_take_turns_in_blocks_of_random_order(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["one_copy", "zero_copy", "--size", "256K", "--repeat", "8", "--seed", "1", "--json", "-"]
    assert compare.main([*words, "--out", str(tmp_path / "out")]) == 0
    blocks = [tuple(machine.order[at : at + 2]) for at in range(0, 16, 2)]
    assert set(blocks) == {("one_copy", "zero_copy"), ("zero_copy", "one_copy")}
    made = json.loads(capsys.readouterr().out)
    row = made["points"][0]["rows"][0]
    assert (made["kind"], made["verdict"]) == ("compare", "worse")
    assert made["names"] == ["one_copy", "zero_copy"]
    # block by block it is the same ratio, however both drift
    assert (row["what"], round(row["low"], 6), round(row["high"], 6)) == ("goodput", -0.2, -0.2)
    assert made["points"][0]["setting"]["size"] == 262_144
    assert {path.name: len(records_file.read(path)) for path in (tmp_path / "out").iterdir()} == {
        "1-one_copy.jsonl.gz": 8,
        "2-zero_copy.jsonl.gz": 8,
    }


@pytest.mark.usefixtures("machine")
def test_the_table_has_the_names_of_the_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main(["zero_copy", "one_copy", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert "one_copy is faster than zero_copy: 101 instead of 80.8 Gb/s (+25 %)" in " ".join(out.split())
    assert any("zero_copy one_copy change verdict" in " ".join(line.split()) for line in out.splitlines())


def test_an_invalid_run_takes_its_block_with_it(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.invalid = {3}
    assert compare.main(["one_copy", "zero_copy", "--quiet", "--json", "-"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["points"][0]["runs"] == [20, 20]
    assert "invalid, its block is left out: identity bytes: 1 is not 2" in said.err


def test_as_many_blocks_again_where_the_first_leave_the_verdict_open(
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
    ("ends", "status", "said"),
    [
        (RunError("sender: was killed by SIGKILL"), 1, "block 4 of 21: sender: was killed by SIGKILL"),
        (KeyboardInterrupt(), 130, "interrupted in block 4 of 21"),
    ],
)
def test_what_ends_it_leaves_the_blocks_before(
    ends: BaseException, status: int, said: str, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.ends = ends
    assert compare.main(["one_copy", "zero_copy", "--quiet", "--json", "-"]) == status
    shown = capsys.readouterr()
    assert json.loads(shown.out)["points"][0]["runs"] == [3, 3]
    assert said in shown.err


def test_a_run_for_which_there_is_no_room_is_kept_elsewhere(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spare, write = tmp_path / "spare", saving.save
    spare.mkdir()

    def full(path: Path, data: bytes) -> None:
        if path.is_relative_to(tmp_path / "out") and len(machine.order) == 7:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, data)

    monkeypatch.setattr(saving, "save", full)
    monkeypatch.setattr("tempfile.tempdir", str(spare))
    out = str(tmp_path / "out")
    assert compare.main(["one_copy", "zero_copy", "--quiet", "--out", out, "--json", "-"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["points"][0]["runs"] == [3, 3]
    assert "No space left on device" in shown.err and "the measurement is saved in" in shown.err
    (kept,) = spare.glob("*/*.json.gz")
    assert store.read(kept)["run"]["repeat"] == 3


@pytest.mark.usefixtures("machine")
def test_equal_ones_say_what_equal_runs_differ_by_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main(["one_copy", "one_copy", "--quiet"]) == 0
    (kept,) = (tmp_path / "results").glob("*/noise.json")
    found = json.loads(kept.read_text())
    assert found["metrics"]["goodput_gbps"] == 0
    kept.write_text(json.dumps(found | {"metrics": {"goodput_gbps": 1.2, "cpu_ns_per_kib": 1.2}}))
    capsys.readouterr()
    assert compare.main(["one_copy", "zero_copy", "--quiet", "--json", "-"]) == 0
    row = json.loads(capsys.readouterr().out)["points"][0]["rows"][0]
    # of means of 21 runs: 1.2 / sqrt(21)
    assert (round(row["threshold"], 4), row["verdict"]) == (0.2619, "no difference")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["one_copy"], "one_copy: only one strategy: give two or more"),
        (["one_copy", "zero_copy", "--repeat", "1"], "--repeat: 1: one run cannot show run-to-run noise"),
        (["one_copy", ""], "A: empty: give a strategy"),
        (["one_copy", "zero_copy '"], "No closing quotation: quote it as for a shell"),
        (
            ["one_copy", "zero_copy", "--keep", "x"],
            "copyscope: --keep: only for single runs: use copyscope run",
        ),
        (["one_copy", "zero_copy", "--json", "-", "--markdown", "-"], "--markdown: -: stdout has the JSON"),
        (
            ["one_copy", "zero_copy", "--noise", "/no/such"],
            "/no/such: No such file or directory: `compare A A",
        ),
        (["one_copy", "zero_copy", "--noise", "/etc/passwd"], "/etc/passwd: not JSON"),
        (["one_copy", "zero_copy --stacks"], "copyscope: --stacks: only for single runs: use copyscope run"),
        (["one_copy", "zero_copy --repeat 3"], "zero_copy --repeat 3: --repeat: an option of compare: write"),
    ],
)
def test_wrong_usage(
    machine: Machine, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert compare.main(words) == 2
    # Found before the first of many runs.
    assert said in capsys.readouterr().err and machine.order == []


def test_figures_of_both_agree_with_the_change(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.noise = 0.4
    assert compare.main(["one_copy", "zero_copy", "--seed", "3", "--repeat", "9", "--json", "-"]) == 0
    for row in json.loads(capsys.readouterr().out)["points"][0]["rows"]:
        if row["base"] == "itself" and row["change"] is not None and row["before"]:
            assert row["after"] / row["before"] == pytest.approx(1 + row["change"])


def test_more_than_two_are_ranked(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.goodput |= {"sendfile": 100.0}
    machine.runs = {**RUNS, "sendfile": deepcopy(RUNS["one_copy"])}
    words = ["zero_copy", "one_copy", "sendfile", "--repeat", "6", "--seed", "1", "--quiet"]
    assert compare.main(words) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("no difference was found between one_copy 100 Gb/s and sendfile 100 Gb/s")
    assert "; then zero_copy 80.2 Gb/s" in text
    assert len(machine.order) == 18 and set(machine.order[:3]) == {"zero_copy", "one_copy", "sendfile"}
    assert compare.main([*words, "--json", "-"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in made["ranking"]][2] == "zero_copy"
    assert made["judged"] == {"one_copy": "better", "sendfile": "better"}


@pytest.mark.usefixtures("machine")
def test_a_worse_one_fails_where_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--repeat", "6", "--quiet", "--fail-if", "worse"]
    assert compare.main(["one_copy", "zero_copy", *words]) == 1
    assert compare.main(["zero_copy", "one_copy", *words]) == 0
    assert capsys.readouterr().out.startswith("zero_copy is slower than one_copy: ")

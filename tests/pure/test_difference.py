# SPDX-License-Identifier: GPL-2.0-only
"""copyscope diff: regressions, changes that are none, and records that are not comparable."""

import io
import json
import math
import random
import subprocess
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from builders import write
from builders.documents import derive, typed_runs
from builders.sweep import run_record
from builders.watched import watched_record
from copyscope.base import paths, stats
from copyscope.base.errors import RunError
from copyscope.commands import diff, output_files
from copyscope.judge import comparison, difference
from copyscope.judge.comparison import Comparison, measure_noise
from copyscope.judge.difference import BETTER, SAME, UNSURE, WORSE, ComparisonOptions, compare, judge_change
from copyscope.judge.metrics import delivered_bytes
from copyscope.show.compared import column_titles, markdown
from copyscope.show.compared import render_difference as render
from rich.console import Console

Record = dict[str, Any]
STEADY = (100.0, 101.0, 99.0, 100.5, 99.5)
POINT = {"impl": "one_copy", "size": 65_536, "threads": 1}
CASES = [
    # (low end, high end, threshold, verdict)
    (0.03, 0.05, 0.02, WORSE),
    (0.01, 0.05, 0.02, UNSURE),
    (-0.01, 0.01, 0.02, SAME),
    (-0.05, -0.03, 0.02, BETTER),
    (-0.05, 0.05, 0.02, UNSURE),
    (0.03, 0.05, 0.04, UNSURE),
]


@pytest.fixture(scope="module")
def base() -> dict[str, Record]:
    return {impl: run_record({**POINT, "impl": impl}, 0, 0) for impl in ("one_copy", "zero_copy")}


def runs(record: Record, goodputs: Sequence[float], cpu: float = 1.0) -> list[Record]:
    """Return copies of a run with these goodputs, and its CPU time multiplied by `cpu`."""
    copies = []
    for repeat, goodput in enumerate(goodputs):
        run = deepcopy(record)
        run["run"] |= {"repeat": repeat, "id": f"demo-{repeat}"}
        run["throughput_gbps"]["unprobed"] = goodput
        for side in ("sender", "receiver", "other"):
            # A faster run takes as much less CPU time per byte.
            run["sides"][side]["cpu_ns"] = run["sides"][side]["cpu_ns"] * cpu * STEADY[repeat % 5] / 100
        copies.append(run)
    return copies


def document(
    before: list[Record], after: list[Record], how: ComparisonOptions, across: frozenset[str] = frozenset()
) -> Comparison:
    return comparison.compare_groups(typed_runs(before), typed_runs(after), how, across)


def keep(records: list[Record], path: Path) -> str:
    path.write_text(json.dumps(records if len(records) > 1 else records[0]))
    return str(path)


@pytest.mark.parametrize(("low", "high", "threshold", "verdict"), CASES)
def test_verdict_follows_from_both_ends_of_the_interval(
    low: float, high: float, threshold: float, verdict: str
) -> None:
    assert judge_change(low, high, threshold) == verdict


def test_student_quantiles_agree_with_published_tables() -> None:
    """Abramowitz and Stegun, table 26.10."""
    table = [(0.95, 1, 12.706), (0.95, 4, 2.776), (0.99, 4, 4.604), (0.998, 9, 4.297), (0.95, 120, 1.980)]
    assert [round(stats.student_quantile(level, degrees), 3) for level, degrees, _ in table] == [
        t for *_, t in table
    ]


def test_mean_difference_has_a_paired_or_a_welch_interval() -> None:
    difference = stats.difference_of([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], paired=True)
    assert (difference.value, difference.low, difference.high) == (1.0, 1.0, 1.0)
    difference = stats.difference_of([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], paired=False)
    half = 4.3027 * math.sqrt(2 / 3)  # t of two degrees of freedom; both variances are 1
    assert difference.low == pytest.approx(1 - half, abs=1e-3)
    assert stats.difference_of([1.0], [2.0], paired=False) == stats.Estimate(1.0, None, None, 0.0, 1)


@pytest.mark.parametrize(
    ("goodput", "cpu", "verdict"),
    [(1.0, 1.0, SAME), (0.95, 1.0, WORSE), (1.06, 1.0, BETTER), (1.0, 1.10, WORSE), (1.0, 0.9, BETTER)],
)
def test_change_beyond_two_percent_is_a_regression(
    base: dict[str, Record], goodput: float, cpu: float, verdict: str
) -> None:
    before = runs(base["one_copy"], STEADY)
    after = runs(base["one_copy"], [gbps * goodput for gbps in STEADY[::-1]], cpu)
    assert document(before, after, ComparisonOptions()).verdict == verdict


def test_change_within_the_noise_of_this_host_is_no_regression(base: dict[str, Record]) -> None:
    before = runs(base["one_copy"], STEADY)
    after = runs(base["one_copy"], [gbps * 0.95 for gbps in STEADY])
    loud = ComparisonOptions(noise={"goodput_gbps": 0.20, "cpu_ns_per_kib": 0.20})
    assert document(before, after, loud).verdict != WORSE
    far = runs(base["one_copy"], [gbps * 0.7 for gbps in STEADY])
    assert document(before, far, loud).verdict == WORSE


def test_recommended_number_of_runs_finds_five_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 10 % noise, the number that 21 blocks recommend finds 5 % in nine of ten comparisons."""
    chance = random.Random(1)
    monkeypatch.setattr(difference, "read_metric", lambda run, name: run[name])

    def blocks(count: int) -> difference.DifferenceRow:
        sides: tuple[list[Any], list[Any]] = ([], [])
        for _ in range(count):
            for side, change in zip(sides, (0.0, math.log(1.05)), strict=True):
                side.append({name: math.exp(chance.gauss(change, 0.1)) for name in (difference.CPU,)})
        row = difference.metric_row(*sides, difference.CPU, ComparisonOptions(paired=True))
        assert row is not None
        return row

    asked = sorted(
        difference.runs_needed([blocks(21)], (21, 21), ComparisonOptions(paired=True)) or 0 for _ in range(60)
    )
    # Each block differs by sqrt(2) times 10 %; (1.96 + 1.28)^2 (0.141 / 0.029)^2 = 250.
    count = asked[30]
    assert 200 <= count <= 300
    assert 0.8 <= sum(blocks(count).verdict == WORSE for _ in range(100)) / 100 <= 0.98
    assert difference.runs_needed([blocks(2)], (1, 1), ComparisonOptions()) is None


def test_row_that_surely_changed_is_reported_if_the_verdict_is_not_clear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A changed row is found, and no other row, although the total of all twenty rows varies by a fifth."""
    chance = random.Random(1)
    monkeypatch.setattr(difference, "row_costs", lambda run: run["rows"])
    monkeypatch.setattr(difference, "read_metric", lambda run, _: run["cpu"])

    def runs_of(count: int, more: float) -> list[Any]:
        invented = []
        for _ in range(count):
            rows = {(f"row{n}", "sender", "user"): 50 * math.exp(chance.gauss(0, 0.2)) for n in range(20)}
            rows["row7", "sender", "user"] += more
            invented.append({"rows": rows, "cpu": 1000 * math.exp(chance.gauss(0, 0.2))})
        return invented

    def sure(more: float) -> list[str]:
        rows = difference.cost_rows(runs_of(21, 0.0), runs_of(21, more), ComparisonOptions(paired=True))
        return [row.what for row in rows if row.sure]

    assert sum(sure(60.0) == ["row7"] for _ in range(50)) >= 45
    assert sum(bool(sure(0.0)) for _ in range(100)) <= 5


def test_screen_shows_the_recommended_number_of_runs(base: dict[str, Record]) -> None:
    wild = (100.0, 80.0, 120.0, 90.0, 110.0)
    compared = document(runs(base["one_copy"], wild), runs(base["one_copy"], wild[::-1]), ComparisonOptions())
    assert compared.verdict == UNSURE and compared.enough_runs and compared.enough_runs > 5
    console = Console(file=io.StringIO(), width=100)
    render(compared, verbose=False, console=console)
    shown = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert f"in this noise you would need {compared.enough_runs} runs of each; use an idle machine" in shown
    steady = document(
        runs(base["one_copy"], STEADY), runs(base["one_copy"], STEADY), ComparisonOptions(paired=True)
    )
    assert steady.enough_runs is None


def test_single_runs_give_no_verdict_on_times(base: dict[str, Record]) -> None:
    compared = document(runs(base["one_copy"], [100]), runs(base["one_copy"], [80]), ComparisonOptions())
    assert compared.verdict == UNSURE
    assert "one run cannot show run-to-run noise" in str(compared.points[0].rows[0].reason)
    with_noise = ComparisonOptions(noise={"goodput_gbps": 0.03, "cpu_ns_per_kib": 0.03})
    assert document(runs(base["one_copy"], [100]), runs(base["one_copy"], [80]), with_noise).verdict == WORSE


def test_copy_that_appeared_is_a_regression_regardless_of_times(base: dict[str, Record]) -> None:
    """Zero-copy sends avoid the copy before, and are all copied late after."""
    after = runs(base["zero_copy"], STEADY)
    before = deepcopy(after)
    for record in before:
        record["zerocopy"] |= {"copied": 0, "bytes_copied": 0}
        for row in record["ledger"]:
            if row["account"] == "deferred" and row["bytes"]:
                row |= {"bytes": 0, "calls": 0}
    old, new = typed_runs(before), typed_runs(after)
    point = compare(old, new, ComparisonOptions())
    assert {(appeared.copy, appeared.before, appeared.after) for appeared in point.appeared} == {
        ("deferred", 0.0, 1.0),
        ("flagged", 0.0, 1.0),
    }
    assert point.verdict == WORSE
    assert compare(new, old, ComparisonOptions()).verdict == BETTER


@pytest.mark.parametrize(
    ("factor", "cpu", "word"),
    [
        (
            0.8,
            1.2,
            "B costs 20 % more CPU time than A (+20 %): worse. "
            "B has 20 % less goodput than A (-20 %): worse.",
        ),
        (
            1.2,
            0.8,
            "B costs 20 % less CPU time than A (-20 %): better. "
            "B has 20 % more goodput than A (+20 %): better.",
        ),
        (1.0, 1.0, "CPU time: no difference (+0 %). Goodput: no difference (+0 %)."),
    ],
)
def test_choice_between_strategies_reports_no_regression(
    base: dict[str, Record], factor: float, cpu: float, word: str
) -> None:
    """Goodput and CPU time decide. Copies of zero-copy sends are only mentioned."""
    before = runs(base["one_copy"], STEADY)
    after = runs(base["zero_copy"], [factor * gbps for gbps in STEADY])
    for run, earlier in zip(after, before, strict=True):
        for side, row in run["sides"].items():
            run_after, run_before = typed_runs((run, earlier))
            moved = delivered_bytes(run_after) / delivered_bytes(run_before)
            row["cpu_ns"] = earlier["sides"][side]["cpu_ns"] * cpu * moved
    how = ComparisonOptions(paired=True, is_choice=True)
    typed = typed_runs(before), typed_runs(after)
    compared = comparison.compare_groups(*typed, how, frozenset({"impl"}), ["A", "B"])
    assert compared.sentence.startswith(word)
    assert compared.sentence.endswith(
        "Over veth the kernel copied anyway: 100 % of the bytes late, "
        "100 % of the sends were reported as copied."
    )
    assert {appeared.copy for appeared in compared.points[0].appeared} == {"deferred", "flagged"}
    console = Console(file=io.StringIO(), width=100, color_system=None)
    render(compared, verbose=True, console=console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue() + markdown(compared)
    assert "regression" not in shown.lower() and "APPEARED" not in shown and "5 runs of each" in shown
    # For one strategy before and after a change, the same numbers are a regression.
    assert document(before, after, ComparisonOptions(paired=True), frozenset({"impl"})).verdict == WORSE


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("zero_copy", "zero_copy --wait each"), ("zero_copy", "--wait each")),
        (("one_copy --fields 1", "one_copy --fields 64"), ("--fields 1", "--fields 64")),
        (("one_copy", "zero_copy"), ("one_copy", "zero_copy")),
        (("one_copy", "one_copy"), ("one_copy", "one_copy again")),
    ],
)
def test_column_titles_show_only_the_options_that_differ(
    names: tuple[str, str], shown: tuple[str, str]
) -> None:
    assert column_titles(names)[:2] == shown


def test_settings_are_matched_and_get_one_verdict(base: dict[str, Record]) -> None:
    small = run_record({**POINT, "size": 4096}, 0, 0)
    before = runs(base["one_copy"], STEADY) + runs(small, STEADY)
    after = runs(small, [gbps * 0.8 for gbps in STEADY]) + runs(base["one_copy"], STEADY)
    compared = document(before, after, ComparisonOptions())
    assert [(point.setting["size"], point.verdict) for point in compared.points] == [
        (65_536, SAME),
        (4096, WORSE),
    ]
    assert compared.sentence.startswith(
        "worse: of 2 settings, 1 worse, 1 no difference. On average: CPU time: no difference ("
    )
    assert document(before, runs(small, STEADY), ComparisonOptions()).only_in[0][0]["size"] == 65_536


def test_an_interval_of_more_than_a_factor_of_ten_is_unknown(base: dict[str, Record]) -> None:
    wild = document(
        runs(base["one_copy"], [100, 1, 10]), runs(base["one_copy"], [1, 90, 12]), ComparisonOptions()
    )
    (row,) = (row for row in wild.points[0].rows if row.what == "goodput")
    assert (row.low, row.high, row.verdict) == (None, None, "n/a")
    assert "Goodput: unknown (the runs differ so much" in wild.sentence
    assert "| unknown | n/a |" in markdown(wild) and wild.verdict == UNSURE


def test_cpu_time_leaves_out_the_programs_of_copyscope() -> None:
    """The BPF programs of copyscope add 30 % to the CPU time of one of the two records."""
    plain = derive(watched_record())
    loaded = deepcopy(plain)
    own = 0.3 * loaded["sides"]["target"]["cpu_ns"]
    loaded["sides"]["target"]["cpu_ns"] += own
    row = next(row for row in loaded["stages"] if row["side"] == "target")
    own_per_kib = own / (delivered_bytes(typed_runs([plain])[0]) / 1024)
    loaded["stages"].append({**row, "stage": "instruments", "cpu_ns": own, "ns_per_kib": own_per_kib})
    costs = [difference.read_metric(run, difference.CPU) for run in typed_runs([plain, loaded])]
    assert costs[1] == pytest.approx(costs[0])


def test_a_copy_that_vanished_comes_first(base: dict[str, Record]) -> None:
    """A count is exact, although the times of single runs have no verdict."""
    compared = document([base["zero_copy"]], [base["one_copy"]], ComparisonOptions(), frozenset({"impl"}))
    assert compared.sentence.startswith(
        "Late copy vanished: 1.00 bytes per delivered byte before, 0.00 after. "
    )
    assert "CPU time: " in compared.sentence and "no verdict" in compared.sentence


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("results/off.json.gz", "results/on.json.gz", ("off", "on")),
        ("old/quick", "new/quick", ("old/quick", "new/quick")),
        ("a/b/run.json", "run.json", ("b/run", "run")),
        ("run.json", "run.json", ("before", "after")),
    ],
)
def test_runs_are_named_by_file(before: str, after: str, names: tuple[str, str]) -> None:
    assert tuple(diff.names_of_files(before, after)) == names


def test_many_unclear_settings_give_a_clear_mean(base: dict[str, Record]) -> None:
    """Each of twelve settings has noisy runs, and is about 5 % slower."""
    before: list[Record] = []
    after: list[Record] = []
    for at in range(12):
        for runs_of_side, factor in ((before, 1.0), (after, 0.95 + (at - 5.5) / 1000)):
            for run in runs(base["one_copy"], [100 * factor, 140 * factor, 70 * factor]):
                run["workload"]["size_bytes"] = 1024 << at
                runs_of_side.append(run)
    compared = document(before, after, ComparisonOptions())
    assert {point.verdict for point in compared.points} == {UNSURE}
    assert compared.verdict == WORSE
    row = compared.overall[0]
    assert (row.what, round(row.change or 0, 3), row.verdict) == ("goodput", -0.05, WORSE)
    assert document(before, before, ComparisonOptions()).verdict == SAME


def test_exit_status_follows_the_verdict(
    base: dict[str, Record], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = keep(runs(base["one_copy"], STEADY), tmp_path / "before.json")
    worse = keep(runs(base["one_copy"], [gbps * 0.9 for gbps in STEADY]), tmp_path / "worse.json")
    single = keep(runs(base["one_copy"], [100]), tmp_path / "single.json")
    assert diff.main([before, before]) == 0
    assert diff.main([before, worse]) == 1
    assert diff.main([single, single]) == 0
    assert diff.main([single, single, "--strict"]) == 3
    out = capsys.readouterr().out
    assert "worse has 10 % less goodput than before (-11 to -9 %): worse." in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 100


def test_incomparable_records_are_refused_with_advice(
    base: dict[str, Record], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = base["one_copy"]
    here = keep([record], tmp_path / "here.json")
    other = deepcopy(record)
    other["machine"]["kernel"] = "9.9.9"
    there = keep([other], tmp_path / "there.json")
    invalid = deepcopy(record)
    invalid["verdict"] |= {"valid": False, "reasons": ["identity bytes: 1 is not 2"]}
    bad = keep([invalid], tmp_path / "bad.json")
    copied = keep([base["zero_copy"]], tmp_path / "copied.json")
    for words, message in (
        (
            [here, there],
            "machine.kernel: 6.18.0-test and 9.9.9: not comparable; add --across kernel to compare anyway",
        ),
        ([here, copied], "impl: one_copy and zero_copy: not comparable; add --across impl to compare anyway"),
        ([here, bad], "no valid run in it; measure again"),
        ([here, str(tmp_path / "none.json")], "none.json: cannot be read"),
        ([here, here, "--across", "colour"], "--across colour: unknown setting; choose one of"),
        ([here, here, "--noise", here], "not written by `compare A A`"),
    ):
        assert diff.main(words) == 2
        error = capsys.readouterr().err.splitlines()
        assert message in error[-1], error
    assert diff.main([here, there, "--across", "kernel"]) == 0
    assert diff.main([here, copied, "--across", "impl"]) == 1


def test_events_of_unlike_pmus_are_not_compared(
    base: dict[str, Record], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is reported for PMUs of one kind, or for machines without a PMU."""
    kinds = {"Intel Xeon": ["cpu"], "AMD EPYC": ["cpu"], "no PMU": []}
    files = {}
    for model, pmu in kinds.items():
        record = deepcopy(base["one_copy"])
        record["machine"] |= {"cpu_model": model, "pmu": pmu}
        files[model] = keep([record], tmp_path / f"{model}.json")
    line = "cycles, cache misses: not compared: the PMUs of Intel Xeon and AMD EPYC count different events"
    for other, has_caveat in (("AMD EPYC", True), ("Intel Xeon", False), ("no PMU", False)):
        diff.main([files["Intel Xeon"], files[other], "--across", "cpu_model,pmu"])
        assert (line in " ".join(capsys.readouterr().out.split())) is has_caveat


def test_failure_has_another_exit_status_than_a_regression(
    base: dict[str, Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = keep([base["one_copy"]], tmp_path / "here.json")

    def fail(*_: Any) -> None:
        raise RunError("somebody below could not do it")

    with monkeypatch.context() as cut:
        cut.setattr(diff, "valid_runs", fail)
        assert diff.main([here, here]) == 2
    tool = [str(paths.ROOT / "bin" / "copyscope"), "diff"]
    with Path("/dev/full").open("wb") as full:
        for form in ([], ["--json", "-"]):
            done = subprocess.run(
                [*tool, here, here, *form], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False
            )
            assert done.returncode == 2 and b"No space left on device" in done.stderr


def test_json_and_markdown_are_written(
    base: dict[str, Record], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = keep(runs(base["one_copy"], STEADY), tmp_path / "before.json")
    worse = keep(runs(base["one_copy"], [gbps * 0.9 for gbps in STEADY]), tmp_path / "worse.json")
    assert diff.main([before, worse, "--json", "-", "--markdown", str(tmp_path / "x.md")]) == 1
    compared = json.loads(capsys.readouterr().out)
    row = compared["points"][0]["rows"][0]
    assert (compared["kind"], row["what"], row["verdict"]) == ("diff", "goodput", "worse")
    assert row["change"] == pytest.approx(-0.1)
    text = (tmp_path / "x.md").read_text()
    assert text.startswith("**CPU time: no difference (")
    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {6}


def test_small_terminal_shows_the_answer_first_and_rows_on_one_line(base: dict[str, Record]) -> None:
    before, after = ([base["zero_copy"]] for _ in range(2))
    compared = document(before, after, ComparisonOptions())
    screens = {}
    for width in (80, 160):
        console = Console(file=io.StringIO(), width=width, color_system=None)
        render(compared, verbose=False, console=console)
        assert isinstance(console.file, io.StringIO)
        screens[width] = console.file.getvalue()
    lines = screens[80].splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert lines[0].startswith("CPU time: ")
    assert sum(line.startswith("late copy") for line in lines) == 1
    assert "counted copies (pp: of the bytes sent), sends copied anyway" in " ".join(lines)
    headers = [
        next(line for line in screens[width].splitlines() if line.startswith("what")) for width in screens
    ]
    assert all(line.split() == ["what", "before", "after", "change", "verdict"] for line in headers)
    assert "deferred" not in screens[80]


def test_watched_programs_are_compared() -> None:
    before, after = (derive(watched_record(zerocopy=True, copied=copied)) for copied in (0, 100))
    compared = document([before], [after], ComparisonOptions())
    assert [appeared.copy for appeared in compared.points[0].appeared] == ["deferred", "flagged"]
    assert compared.verdict == WORSE
    assert document([before], [before], ComparisonOptions()).verdict == UNSURE


def test_noise_is_the_difference_of_identical_runs(base: dict[str, Record], tmp_path: Path) -> None:
    """The two runs differ by a factor e^0.01. The limit is this factor to the power of Student's quantile."""
    pair = (runs(base["one_copy"], [goodput]) for goodput in (100.0, 100 * math.exp(0.01)))
    noise = measure_noise(*map(typed_runs, pair))
    assert noise.metrics["goodput_gbps"] == pytest.approx(math.expm1(0.127062), rel=1e-4)
    output_files.write_document(noise, tmp_path / "noise.json")
    assert diff.read_noise(tmp_path / "noise.json") == noise.metrics


def test_all_forms_of_records_are_read(base: dict[str, Record], tmp_path: Path) -> None:
    """The forms are a record, a list of records and a directory of records."""
    record = base["one_copy"]
    write(record, tmp_path / "a.json.gz")
    assert len(diff.valid_runs(tmp_path / "a.json.gz")) == 1
    assert len(diff.valid_runs(Path(keep(runs(record, STEADY), tmp_path / "b.json")))) == 5
    assert len(diff.valid_runs(tmp_path)) == 6


def test_two_programs_are_compared_only_with_across(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = derive(watched_record())
    other = deepcopy(watched)
    other["target"]["name"] = "client[4712]"
    files = [keep([record], tmp_path / f"{record['target']['name']}.json") for record in (watched, other)]
    assert diff.main(files) == 2
    assert "program: server and client: not comparable; add --across program" in capsys.readouterr().err
    assert diff.main([*files, "--across", "program"]) == 0

"""copyscope diff: what is a regression, what is not, and what cannot be compared."""

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
from builders.sweep import one
from builders.watched import watched_record
from copyscope import paths, stats
from copyscope.commands import diff, documents
from copyscope.errors import RunError
from copyscope.judge import comparison, difference
from copyscope.judge.comparison import Comparison, noise
from copyscope.judge.difference import BETTER, SAME, UNSURE, WORSE, How, compare, judge
from copyscope.judge.metrics import delivered_bytes, typed_runs
from copyscope.ledger.derive import derive
from copyscope.show.difference import markdown, render, titles
from rich.console import Console

Record = dict[str, Any]
STEADY = (100.0, 101.0, 99.0, 100.5, 99.5)
POINT = {"impl": "one_copy", "size": 65_536, "threads": 1}
CASES = [
    # a change of the interval's ends, the threshold, and what it is
    (0.03, 0.05, 0.02, WORSE),
    (0.01, 0.05, 0.02, UNSURE),
    (-0.01, 0.01, 0.02, SAME),
    (-0.05, -0.03, 0.02, BETTER),
    (-0.05, 0.05, 0.02, UNSURE),
    (0.03, 0.05, 0.04, UNSURE),
]


@pytest.fixture(scope="module")
def base() -> dict[str, Record]:
    return {impl: one({**POINT, "impl": impl}, 0, 0) for impl in ("one_copy", "zero_copy")}


def runs(record: Record, goodputs: Sequence[float], cpu: float = 1.0) -> list[Record]:
    """Equal runs but for their goodput, and with more or less CPU time."""
    made = []
    for repeat, goodput in enumerate(goodputs):
        run = deepcopy(record)
        run["run"] |= {"repeat": repeat, "id": f"demo-{repeat}"}
        run["throughput_gbps"]["unprobed"] = goodput
        for side in ("sender", "receiver", "other"):
            # as much faster, as much less CPU time a byte, but for what was asked
            run["sides"][side]["cpu_ns"] = run["sides"][side]["cpu_ns"] * cpu * STEADY[repeat % 5] / 100
        made.append(run)
    return made


def document(
    before: list[Record], after: list[Record], how: How, across: frozenset[str] = frozenset()
) -> Comparison:
    return comparison.document(typed_runs(before), typed_runs(after), how, across)


def keep(records: list[Record], path: Path) -> str:
    path.write_text(json.dumps(records if len(records) > 1 else records[0]))
    return str(path)


@pytest.mark.parametrize(("low", "high", "threshold", "verdict"), CASES)
def test_an_interval_is_judged_as_a_whole(low: float, high: float, threshold: float, verdict: str) -> None:
    assert judge(low, high, threshold) == verdict


def test_quantiles_of_student_are_those_of_its_tables() -> None:
    """Abramowitz and Stegun, table 26.10."""
    table = [(0.95, 1, 12.706), (0.95, 4, 2.776), (0.99, 4, 4.604), (0.998, 9, 4.297), (0.95, 120, 1.980)]
    assert [round(stats.student(level, degrees), 3) for level, degrees, _ in table] == [t for *_, t in table]


def test_a_mean_difference_has_welchs_and_the_paired_interval() -> None:
    found = stats.difference_of([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], paired=True)
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)
    found = stats.difference_of([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], paired=False)
    half = 4.3027 * math.sqrt(2 / 3)  # t of two degrees of freedom; both variances are 1
    assert found.low == pytest.approx(1 - half, abs=1e-3)
    assert stats.difference_of([1.0], [2.0], paired=False) == stats.Estimate(1.0, None, None, 0.0, 1)


@pytest.mark.parametrize(
    ("goodput", "cpu", "verdict"),
    [(1.0, 1.0, SAME), (0.95, 1.0, WORSE), (1.06, 1.0, BETTER), (1.0, 1.10, WORSE), (1.0, 0.9, BETTER)],
)
def test_repeated_runs_are_a_regression_beyond_two_per_cent(
    base: dict[str, Record], goodput: float, cpu: float, verdict: str
) -> None:
    before = runs(base["one_copy"], STEADY)
    after = runs(base["one_copy"], [one * goodput for one in STEADY[::-1]], cpu)
    assert document(before, after, How()).verdict == verdict


def test_less_than_the_noise_of_this_host_is_no_regression(base: dict[str, Record]) -> None:
    before = runs(base["one_copy"], STEADY)
    after = runs(base["one_copy"], [one * 0.95 for one in STEADY])
    loud = How(noise={"goodput_gbps": 0.20, "cpu_ns_per_kib": 0.20})
    assert document(before, after, loud).verdict != WORSE
    far = runs(base["one_copy"], [one * 0.7 for one in STEADY])
    assert document(before, far, loud).verdict == WORSE


def test_so_many_runs_as_it_asks_for_find_five_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs 10 % apart: what 21 blocks ask for finds a change of 5 % in nine of ten comparisons."""
    chance = random.Random(1)
    monkeypatch.setattr(difference, "read_metric", lambda run, name: run[name])

    def blocks(count: int) -> difference.Row:
        sides: tuple[list[Any], list[Any]] = ([], [])
        for _ in range(count):
            for side, change in zip(sides, (0.0, math.log(1.05)), strict=True):
                side.append({name: math.exp(chance.gauss(change, 0.1)) for name in (difference.CPU,)})
        row = difference.metric_row(*sides, difference.CPU, How(paired=True))
        assert row is not None
        return row

    asked = sorted(difference.enough([blocks(21)], (21, 21), How(paired=True)) or 0 for _ in range(60))
    # Each block differs by sqrt(2) times 10 %; (1.96 + 1.28)^2 (0.141 / 0.029)^2 = 250.
    count = asked[30]
    assert 200 <= count <= 300
    assert 0.8 <= sum(blocks(count).verdict == WORSE for _ in range(100)) / 100 <= 0.98
    assert difference.enough([blocks(2)], (1, 1), How()) is None


def test_a_row_that_surely_changed_is_named_where_the_whole_leaves_it_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of twenty equal rows, where the whole varies by a fifth; rows of equal runs are not named."""
    chance = random.Random(1)
    monkeypatch.setattr(difference, "row_costs", lambda run: run["rows"])
    monkeypatch.setattr(difference, "read_metric", lambda run, _: run["cpu"])

    def runs_of(count: int, more: float) -> list[Any]:
        made = []
        for _ in range(count):
            rows = {(f"row{n}", "sender", "user"): 50 * math.exp(chance.gauss(0, 0.2)) for n in range(20)}
            rows["row7", "sender", "user"] += more
            made.append({"rows": rows, "cpu": 1000 * math.exp(chance.gauss(0, 0.2))})
        return made

    def sure(more: float) -> list[str]:
        rows = difference.cost_rows(runs_of(21, 0.0), runs_of(21, more), How(paired=True))
        return [row.what for row in rows if row.sure]

    assert sum(sure(60.0) == ["row7"] for _ in range(50)) >= 45
    assert sum(bool(sure(0.0)) for _ in range(100)) <= 5


def test_what_it_asks_for_is_on_the_screen(base: dict[str, Record]) -> None:
    wild = (100.0, 80.0, 120.0, 90.0, 110.0)
    made = document(runs(base["one_copy"], wild), runs(base["one_copy"], wild[::-1]), How())
    assert made.verdict == UNSURE and made.enough_runs and made.enough_runs > 5
    console = Console(file=io.StringIO(), width=100)
    render(made, verbose=False, console=console)
    shown = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert f"next: at this noise, a change of 5 % needs {made.enough_runs} runs of each" in shown
    steady = document(runs(base["one_copy"], STEADY), runs(base["one_copy"], STEADY), How(paired=True))
    assert steady.enough_runs is None


def test_one_run_each_says_nothing_of_times(base: dict[str, Record]) -> None:
    made = document(runs(base["one_copy"], [100]), runs(base["one_copy"], [80]), How())
    assert made.verdict == UNSURE
    assert "one run cannot show run-to-run noise" in str(made.points[0].rows[0].reason)
    known = How(noise={"goodput_gbps": 0.03, "cpu_ns_per_kib": 0.03})
    assert document(runs(base["one_copy"], [100]), runs(base["one_copy"], [80]), known).verdict == WORSE


def test_a_copy_that_appeared_is_a_regression_whatever_the_times_say(base: dict[str, Record]) -> None:
    """Zero-copy whose sends went by reference before, and are all copied late afterwards."""
    after = runs(base["zero_copy"], STEADY)
    before = deepcopy(after)
    for record in before:
        record["zerocopy"] |= {"copied": 0, "bytes_copied": 0}
        for row in record["ledger"]:
            if row["account"] == "deferred" and row["bytes"]:
                row |= {"bytes": 0, "calls": 0}
    old, new = typed_runs(before), typed_runs(after)
    found = compare(old, new, How())
    assert {(one.copy, one.before, one.after) for one in found.appeared} == {
        ("deferred", 0.0, 1.0),
        ("flagged", 0.0, 1.0),
    }
    assert found.verdict == WORSE
    assert compare(new, old, How()).verdict == BETTER


@pytest.mark.parametrize(
    ("factor", "cpu", "word"),
    [
        (0.8, 1.2, "B is slower than A: 80 instead of 100 Gb/s (-20 %); it takes "),
        (1.2, 0.8, "B is faster than A: 120 instead of 100 Gb/s (+20 %); it takes "),
        (1.0, 1.0, "B is as fast as A: 100 instead of 100 Gb/s (+0 %); as much CPU time (+0 %)"),
    ],
)
def test_of_two_ways_none_is_a_regression_and_what_each_copies_is_no_fault(
    base: dict[str, Record], factor: float, cpu: float, word: str
) -> None:
    """What decides is what somebody gets and pays; a zero-copy that was copied is said in words."""
    before = runs(base["one_copy"], STEADY)
    after = runs(base["zero_copy"], [factor * one for one in STEADY])
    for run, known in zip(after, before, strict=True):
        for side, row in run["sides"].items():
            one, other = typed_runs((run, known))
            moved = delivered_bytes(one) / delivered_bytes(other)
            row["cpu_ns"] = known["sides"][side]["cpu_ns"] * cpu * moved
    how = How(paired=True, chosen=True)
    typed = typed_runs(before), typed_runs(after)
    made = comparison.document(*typed, how, frozenset({"impl"}), ["A", "B"])
    assert made.sentence.startswith(word)
    assert made.sentence.endswith(
        "over veth the kernel copied anyway: 100 % of the bytes late, "
        "100 % of the sends were reported as copied"
    )
    assert {one.copy for one in made.points[0].appeared} == {"deferred", "flagged"}
    console = Console(file=io.StringIO(), width=100, color_system=None)
    render(made, verbose=True, console=console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue() + markdown(made)
    assert "regression" not in shown.lower() and "APPEARED" not in shown and "5 runs of each" in shown
    # Said of one strategy before and after a change, the same is a regression.
    assert document(before, after, How(paired=True), frozenset({"impl"})).verdict == WORSE


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("zero_copy", "zero_copy --wait each"), ("zero_copy", "--wait each")),
        (("one_copy --fields 1", "one_copy --fields 64"), ("--fields 1", "--fields 64")),
        (("one_copy", "zero_copy"), ("one_copy", "zero_copy")),
        (("one_copy", "one_copy"), ("one_copy", "one_copy again")),
    ],
)
def test_columns_are_called_by_what_differs(names: tuple[str, str], shown: tuple[str, str]) -> None:
    assert titles(names)[:2] == shown


def test_settings_apart_are_matched_and_judged_together(base: dict[str, Record]) -> None:
    small = one({**POINT, "size": 4096}, 0, 0)
    before = runs(base["one_copy"], STEADY) + runs(small, STEADY)
    after = runs(small, [one * 0.8 for one in STEADY]) + runs(base["one_copy"], STEADY)
    made = document(before, after, How())
    assert [(one.setting["size"], one.verdict) for one in made.points] == [
        (65_536, SAME),
        (4096, WORSE),
    ]
    assert made.sentence.startswith("worse: of 2 settings 1 worse, 1 no difference; goodput -10.6 % (")
    assert document(before, runs(small, STEADY), How()).only_in[0][0]["size"] == 65_536


def test_what_no_setting_shows_alone_all_of_them_show_together(base: dict[str, Record]) -> None:
    """Twelve settings, each with runs that lie far apart, and each 5 % slower but for a little."""
    before: list[Record] = []
    after: list[Record] = []
    for at in range(12):
        for runs_of_side, factor in ((before, 1.0), (after, 0.95 + (at - 5.5) / 1000)):
            for run in runs(base["one_copy"], [100 * factor, 140 * factor, 70 * factor]):
                run["workload"]["size_bytes"] = 1024 << at
                runs_of_side.append(run)
    made = document(before, after, How())
    assert {one.verdict for one in made.points} == {UNSURE}
    assert made.verdict == WORSE
    row = made.overall[0]
    assert (row.what, round(row.change or 0, 3), row.verdict) == ("goodput", -0.05, WORSE)
    assert document(before, before, How()).verdict == SAME


def test_exit_status_is_that_of_diff(
    base: dict[str, Record], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = keep(runs(base["one_copy"], STEADY), tmp_path / "before.json")
    worse = keep(runs(base["one_copy"], [one * 0.9 for one in STEADY]), tmp_path / "worse.json")
    single = keep(runs(base["one_copy"], [100]), tmp_path / "single.json")
    assert diff.main([before, before]) == 0
    assert diff.main([before, worse]) == 1
    assert diff.main([single, single]) == 0
    assert diff.main([single, single, "--strict"]) == 3
    out = capsys.readouterr().out
    assert "worse: goodput -10.0 %" in out
    assert max(map(len, out.splitlines())) <= 100


def test_what_cannot_be_compared_is_trouble(
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
    for words, said in (
        (
            [here, there],
            "machine.kernel: 6.18.0-test and 9.9.9: not comparable; add --across kernel to compare anyway",
        ),
        ([here, copied], "impl: one_copy and zero_copy: not comparable; add --across impl to compare anyway"),
        ([here, bad], "no valid run in it: measure again"),
        ([here, str(tmp_path / "none.json")], "none.json: cannot be read"),
        ([here, here, "--across", "colour"], "--across: colour: not one of"),
        ([here, here, "--noise", here], "not what `compare A A` writes"),
    ):
        assert diff.main(words) == 2
        error = capsys.readouterr().err.splitlines()
        assert said in error[-1], error
    assert diff.main([here, there, "--across", "kernel"]) == 0
    assert diff.main([here, copied, "--across", "impl"]) == 1


def test_events_of_unlike_pmus_are_not_compared(
    base: dict[str, Record], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one kind, or of none, there is nothing to say."""
    kinds = {"Intel Xeon": ["cpu"], "AMD EPYC": ["cpu"], "no PMU": []}
    files = {}
    for model, pmu in kinds.items():
        record = deepcopy(base["one_copy"])
        record["machine"] |= {"cpu_model": model, "pmu": pmu}
        files[model] = keep([record], tmp_path / f"{model}.json")
    line = "cycles, cache misses: not compared: the PMUs of Intel Xeon and AMD EPYC count different events"
    for other, said in (("AMD EPYC", True), ("Intel Xeon", False), ("no PMU", False)):
        diff.main([files["Intel Xeon"], files[other], "--across", "cpu_model,pmu"])
        assert (line in " ".join(capsys.readouterr().out.split())) is said


def test_only_a_regression_has_the_status_of_one(
    base: dict[str, Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = keep([base["one_copy"]], tmp_path / "here.json")

    def fail(*_: Any) -> None:
        raise RunError("somebody below could not do it")

    with monkeypatch.context() as cut:
        cut.setattr(diff, "runs_of", fail)
        assert diff.main([here, here]) == 2
    tool = [str(paths.ROOT / "bin" / "copyscope"), "diff"]
    with Path("/dev/full").open("wb") as full:
        for form in ([], ["--json", "-"]):
            done = subprocess.run(
                [*tool, here, here, *form], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False
            )
            assert done.returncode == 2 and b"No space left on device" in done.stderr


def test_forms_for_programs_and_for_pull_requests(
    base: dict[str, Record], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = keep(runs(base["one_copy"], STEADY), tmp_path / "before.json")
    worse = keep(runs(base["one_copy"], [one * 0.9 for one in STEADY]), tmp_path / "worse.json")
    assert diff.main([before, worse, "--json", "-", "--markdown", str(tmp_path / "x.md")]) == 1
    made = json.loads(capsys.readouterr().out)
    row = made["points"][0]["rows"][0]
    assert (made["kind"], row["what"], row["verdict"]) == ("diff", "goodput", "worse")
    assert row["change"] == pytest.approx(-0.1)
    text = (tmp_path / "x.md").read_text()
    assert text.startswith("**worse: goodput -10.0 %")
    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {6}


def test_on_a_small_terminal_the_answer_is_first_and_a_row_is_one_line(base: dict[str, Record]) -> None:
    before, after = ([base["zero_copy"]] for _ in range(2))
    made = document(before, after, How())
    said = {}
    for width in (80, 160):
        console = Console(file=io.StringIO(), width=width, color_system=None)
        render(made, verbose=False, console=console)
        assert isinstance(console.file, io.StringIO)
        said[width] = console.file.getvalue()
    lines = said[80].splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert lines[0].startswith(("not clear: ", "no difference: "))
    assert sum(line.startswith("late copy") for line in lines) == 1
    assert "counted copies (pp: of the bytes sent), sends copied anyway" in " ".join(lines)
    headers = [next(line for line in said[width].splitlines() if line.startswith("what")) for width in said]
    assert all(line.split() == ["what", "before", "after", "change", "verdict"] for line in headers)
    assert "deferred" not in said[80]


def test_a_program_that_is_watched_is_compared_too() -> None:
    before, after = (derive(watched_record(zerocopy=True, copied=copied)) for copied in (0, 100))
    made = document([before], [after], How())
    assert [one.copy for one in made.points[0].appeared] == ["deferred", "flagged"]
    assert made.verdict == WORSE
    assert document([before], [before], How()).verdict == UNSURE


def test_noise_is_what_equal_runs_differ_by(base: dict[str, Record], tmp_path: Path) -> None:
    """One block in which they differ by a factor e^0.01: within t(1) times that, 19 times of 20."""
    pair = (runs(base["one_copy"], [goodput]) for goodput in (100.0, 100 * math.exp(0.01)))
    made = noise(*map(typed_runs, pair))
    assert made.metrics["goodput_gbps"] == pytest.approx(math.expm1(0.127062), rel=1e-4)
    documents.write_json(made, tmp_path / "noise.json")
    assert diff.read_noise(tmp_path / "noise.json") == made.metrics


def test_records_as_profile_writes_them_are_read(base: dict[str, Record], tmp_path: Path) -> None:
    """A record, a list of records, a directory of records."""
    record = base["one_copy"]
    write(record, tmp_path / "a.json.gz")
    assert len(diff.runs_of(tmp_path / "a.json.gz")) == 1
    assert len(diff.runs_of(Path(keep(runs(record, STEADY), tmp_path / "b.json")))) == 5
    assert len(diff.runs_of(tmp_path)) == 6


def test_two_programs_are_not_compared_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watched = derive(watched_record())
    other = deepcopy(watched)
    other["target"]["name"] = "client[4712]"
    files = [keep([one], tmp_path / f"{one['target']['name']}.json") for one in (watched, other)]
    assert diff.main(files) == 2
    assert "program: server and client: not comparable; add --across program" in capsys.readouterr().err
    assert diff.main([*files, "--across", "program"]) == 0

"""The sweep with a machine that does not exist: whatever happens to it, each run is there once."""

import io
import json
import os
import random
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import raw_record
from builders.sweep import kept
from builders.two_hosts import on_two_hosts
from copyscope import paths
from copyscope.commands.sweep import EXPERIMENTS, default_directory
from copyscope.errors import MachineError, RunError, UsageError
from copyscope.ledger.derive import derive
from copyscope.record import records_file, store
from copyscope.show.sweep import SweepProgress, outcome_lines, plan_lines
from copyscope.sweep import noise
from copyscope.sweep.directory import refuse_foreign
from copyscope.sweep.experiment import Experiment, Point, expand, identify, load
from copyscope.sweep.noise import Sample, count_judged, find_unsteady
from copyscope.sweep.rewriting import rewrite, strip
from copyscope.sweep.sweep import Outcome, perform
from copyscope.units import format_minutes
from hypothesis import given, settings
from hypothesis import strategies as st

TEMPLATE = derive(raw_record("one_copy"))
STEADY_GBPS = 10.0
EXPERIMENT = """\
name = "tiny"
question = "Does it hold?"
expected = "1m"
repeats = 2
duration_s = 0.5
seed = 7
[factors]
impl = ["two_copy", "one_copy"]
size = ["4K", "64K"]
"""
RUNS = 8
MOMENTS = ("run", "part", "kept", "ctrl-c")


class Killed(BaseException):
    """SIGKILL: nothing of the sweep runs after it."""


def make(point: Point, goodput_gbps: float = STEADY_GBPS, **machine: Any) -> dict[str, Any]:
    """The record of a run that went well."""
    run: dict[str, Any] = {"id": point.run_id, "experiment": "tiny", "factors": point.factors}
    run |= {"repeat": point.repeat, "order": point.order}
    return {
        **TEMPLATE,
        "run": {**TEMPLATE["run"], **run},
        "machine": {**TEMPLATE["machine"], "steal_percent": 0.0, **machine},
        "throughput_gbps": {**TEMPLATE["throughput_gbps"], "unprobed": goodput_gbps},
    }


def invalid(point: Point) -> dict[str, Any]:
    verdict = {**TEMPLATE["verdict"], "valid": False, "reasons": ["too short: 3 ms"]}
    return {**make(point), "verdict": verdict}


def sweep(
    directory: Path, run: Callable[[Point], dict[str, Any]], text: str = EXPERIMENT, **options: Any
) -> Outcome:
    path = directory.parent / f"{directory.name}.toml"
    path.write_text(text)
    progress = SweepProgress("tiny", quiet=True, stream=io.StringIO())
    return perform(load(path), directory, progress=progress, run=run, **options)


def experiment_of(directory: Path) -> Experiment:
    return load(directory / "experiment.toml")


def there(directory: Path) -> set[str]:
    return {record["run"]["id"] for record in kept(directory)} if file_of(directory).exists() else set()


def file_of(directory: Path) -> Path:
    return directory / records_file.NAME


def planned(directory: Path) -> list[Point]:
    return expand(experiment_of(directory))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "results" / "host" / "tiny"


@pytest.fixture(autouse=True)
def parents(directory: Path) -> None:
    directory.parent.mkdir(parents=True)


def test_every_run_once_in_its_order(directory: Path) -> None:
    order: list[Point] = []

    def run(point: Point) -> dict[str, Any]:
        order.append(point)
        return make(point)

    outcome = sweep(directory, run)
    assert order == planned(directory) and len(order) == RUNS
    assert there(directory) == {point.run_id for point in order}
    assert outcome.complete and (outcome.done, outcome.ran, outcome.judged) == (RUNS, RUNS, 4)
    assert (directory / "experiment.toml").read_text() == EXPERIMENT
    for point, found in zip(order, kept(directory), strict=True):
        assert found["run"]["id"] == point.run_id
        assert found["run"]["factors"] == point.factors and found["run"]["order"] == point.order
    rewrite(directory, strip)
    again = sweep(directory, run)
    assert len(order) == RUNS and again.complete and (again.done, again.ran) == (RUNS, 0)


@settings(max_examples=16)
@given(st.lists(st.tuples(st.integers(0, RUNS), st.sampled_from(MOMENTS)), max_size=6))
def test_whatever_interrupts_it_each_run_is_there_once(interruptions: list[tuple[int, str]]) -> None:
    """Killed while it runs, while it writes, after it has written; or stopped by Ctrl-C."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "tiny"
        ran: Counter[str] = Counter()
        for after, moment in [*interruptions, (RUNS + 1, "never")]:
            done = 0
            before = there(directory) if directory.exists() else set()

            def run(
                point: Point, after: int = after, moment: str = moment, before: set[str] = before
            ) -> dict[str, Any]:
                nonlocal done
                assert point.run_id not in before, "run twice"
                if done == after and moment == "run":
                    raise Killed
                if done == after and moment == "part":
                    with file_of(directory).open("ab") as stream:
                        stream.write(store.compressed_line(make(point))[: 17 + 50 * after])
                    raise Killed
                if done == after and moment == "ctrl-c":
                    raise KeyboardInterrupt
                if done == after + 1 and moment == "kept":
                    raise Killed
                done += 1
                ran[point.run_id] += 1
                return make(point)

            try:
                outcome = sweep(directory, run)
            except Killed:
                continue
            assert outcome.interrupted == (moment == "ctrl-c" and len(before) + after < RUNS)
            assert outcome.done + outcome.left == RUNS
        assert outcome.complete
        assert there(directory) == {point.run_id for point in planned(directory)}
        assert set(ran.values()) == {1} and len(ran) == RUNS
        assert len(kept(directory)) == RUNS
        # and no part of one
        assert file_of(directory).read_bytes() == b"".join(map(store.compressed_line, kept(directory)))


def test_what_is_there_is_inflated_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sweep(directory, make).complete
    inflated: list[int] = []
    inflate = records_file._member

    def count(data: bytes, at: int) -> records_file.Member:
        inflated.append(at)
        return inflate(data, at)

    monkeypatch.setattr(records_file, "_member", count)
    assert sweep(directory, fail).complete and len(inflated) == RUNS


def test_a_failed_run_is_written_down_and_tried_once_more_at_the_end(directory: Path) -> None:
    seen: list[str] = []

    def run(point: Point) -> dict[str, Any]:
        seen.append(point.run_id)
        if point.order == 2 or (point.order == 4 and seen.count(point.run_id) == 1):
            raise RunError("sender: ended by SIGKILL")
        return make(point)

    outcome = sweep(directory, run)
    runs = [point.run_id for point in planned(directory)]
    assert seen == [*runs, runs[2], runs[4]]
    assert not outcome.complete and outcome.done == RUNS - 1 and outcome.left == 0
    (reason,) = outcome.failed
    assert "ended by SIGKILL" in reason and "impl=" in reason
    rows = [json.loads(line) for line in (directory / "failures.jsonl").read_text().splitlines()]
    assert [row["run_id"] for row in rows] == [runs[2], runs[4], runs[2]]
    assert all(row["reason"] == "sender: ended by SIGKILL" for row in rows)
    assert rows[0]["factors"] == planned(directory)[2].factors and rows[0]["repeat"] == 0
    # The next call tries it again, and only it.
    seen.clear()
    assert sweep(directory, make).complete


def test_what_the_machine_cannot_do_costs_only_its_own_points(directory: Path) -> None:
    def run(point: Point) -> dict[str, Any]:
        if point.factors["size"] == 65536:
            raise MachineError("pages: hugetlb: 0 free")
        return make(point)

    outcome = sweep(directory, run, budget_s=1e6)
    assert outcome.done == RUNS // 2 and len(outcome.failed) == RUNS // 2


def test_a_failure_after_a_cut_line_has_a_line_of_its_own(directory: Path) -> None:
    directory.mkdir()
    (directory / "failures.jsonl").write_text('{"run_id": "tiny-')

    sweep(directory, fail)
    cut, *rows = (directory / "failures.jsonl").read_text().splitlines()
    assert cut == '{"run_id": "tiny-' and len([json.loads(row) for row in rows]) == 2 * RUNS


def test_an_invalid_run_is_kept_and_not_repeated(directory: Path) -> None:
    calls: Counter[str] = Counter()

    def run(point: Point) -> dict[str, Any]:
        calls[point.run_id] += 1
        return invalid(point) if point.order == 3 else make(point)

    outcome = sweep(directory, run, budget_s=1e6)
    assert set(calls.values()) == {1} and outcome.done == RUNS
    assert not outcome.complete and len(outcome.invalid) == 1 and "too short: 3 ms" in outcome.invalid[0]
    assert sweep(directory, run).invalid == outcome.invalid and set(calls.values()) == {1}


def test_a_damaged_record_is_named_and_run_again(directory: Path) -> None:
    sweep(directory, make)
    lines = [store.compressed_line(record) for record in kept(directory)]
    lines[0] = lines[0][:100]
    lines[1] = store.compressed_line({"schema": 2})
    lines[2] = lines[2][:500] + b"?" + lines[2][501:]
    file_of(directory).write_bytes(b"".join(lines))
    outcome = sweep(directory, make)
    assert outcome.complete and outcome.ran == 3
    named = [f"{file_of(directory)}: line {number}: " for number in (1, 2, 3)]
    assert [told.startswith(name) for told, name in zip(outcome.damaged, named, strict=True)] == [True] * 3
    assert not sweep(directory, make).damaged


def test_a_full_disk_stops_before_the_next_run(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    free = [50 << 20] * 3 + [1 << 20] * 100

    def shrinking(_path: object) -> object:
        return usage._replace(free=free.pop(0))

    monkeypatch.setattr(shutil, "disk_usage", shrinking)
    outcome = sweep(directory, make)
    assert (outcome.done, outcome.ran, outcome.left) == (3, 3, RUNS - 3)
    assert outcome.stopped and "1024 KiB left" in outcome.stopped and not outcome.complete
    monkeypatch.undo()
    assert sweep(directory, make).ran == RUNS - 3


def test_a_disk_that_is_full_while_writing_loses_only_that_run(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = records_file.append

    def full(path: Path, made: dict[str, Any]) -> None:
        if made["run"]["order"] == 5:
            raise store.RecordError(f"record: {path}: cannot be written: No space left on device")
        append(path, made)

    monkeypatch.setattr(records_file, "append", full)
    monkeypatch.setattr("tempfile.tempdir", str(directory.parent))  # where it is kept instead
    outcome = sweep(directory, make)
    assert outcome.done == 5 and outcome.stopped and "No space left on device" in outcome.stopped
    monkeypatch.undo()
    assert sweep(directory, make).ran == RUNS - 5


def test_another_experiment_is_refused_with_the_way_out(directory: Path) -> None:
    sweep(directory, make)
    with pytest.raises(UsageError, match=r"factors\.size differs from .*choose another --out"):
        sweep(directory, make, EXPERIMENT.replace("4K", "8K"))
    with pytest.raises(UsageError, match=r"duration_s differs"):
        sweep(directory, make, EXPERIMENT.replace("0.5", "0.6"))
    assert (directory / "experiment.toml").read_text() == EXPERIMENT


def test_more_repeats_and_better_words_are_the_same_experiment(directory: Path) -> None:
    sweep(directory, make)
    outcome = sweep(directory, make, "# A comment\n" + EXPERIMENT.replace("repeats = 2", "repeats = 3"))
    assert outcome.complete and (outcome.done, outcome.ran) == (12, 4)
    assert (directory / "experiment.toml").read_text() == EXPERIMENT


def test_a_kill_while_the_experiment_was_copied(directory: Path) -> None:
    directory.mkdir()
    (directory / "experiment.toml").write_text(EXPERIMENT[:20])
    assert sweep(directory, make).complete
    assert (directory / "experiment.toml").read_text() == EXPERIMENT


def test_two_machines_are_not_mixed(directory: Path) -> None:
    sweep(directory, lambda point: make(point) if point.order < 2 else stop(point))
    outcome = sweep(directory, lambda point: make(point, kernel="7.2.0"))
    assert outcome.stopped and "machine.kernel" in outcome.stopped and "7.2.0" in outcome.stopped
    assert len(there(directory)) == 2


def stop(_point: Point) -> dict[str, Any]:
    raise KeyboardInterrupt


def test_two_sweeps_at_once_are_not_mixed(directory: Path) -> None:
    def run(point: Point) -> dict[str, Any]:
        with pytest.raises(RunError, match="another sweep"):
            sweep(directory, make)
        return make(point)

    assert sweep(directory, run).complete


def test_a_directory_that_cannot_be(directory: Path) -> None:
    directory.write_text("a file")
    with pytest.raises(RunError, match=r"tiny.*choose another --out"):
        sweep(directory, make)


def noisy_runs(noisy: Callable[[Point], bool]) -> Callable[[Point], dict[str, Any]]:
    generator = random.Random(1)
    return lambda point: make(point, STEADY_GBPS * (generator.uniform(0.5, 2) if noisy(point) else 1.0))


def test_noise_is_named_and_repeated_with_its_counterparts_while_the_budget_lasts(directory: Path) -> None:
    run = noisy_runs(lambda point: point.factors == {"impl": "one_copy", "size": 4096})
    first = sweep(directory, run)
    assert first.complete and first.extra == 0  # no budget, no extra repeats
    assert len(first.noisy) == 1 and first.noisy[0].startswith("impl=one_copy size=4K: goodput varies by")
    # A block of two runs takes about 2.6 s: a budget of 2 s has no room for one.
    assert sweep(directory, run, budget_s=2).extra == 0
    outcome = sweep(directory, run, budget_s=1e6)
    extra = [record["run"] for record in kept(directory)]
    extra = [row for row in extra if row["repeat"] >= 2]
    assert len(extra) == outcome.extra > 0
    assert {identify(row["factors"]) for row in extra} == {
        identify({"impl": impl, "size": 4096}) for impl in ("one_copy", "two_copy")
    }
    assert set(Counter(row["repeat"] for row in extra).values()) == {2}  # whole blocks
    assert len({row["order"] for row in extra}) == len(extra) and min(row["order"] for row in extra) == RUNS
    assert max(row["repeat"] for row in extra) < noise.MOST_REPEATS
    # What is there counts for the next call.
    assert sweep(directory, run, budget_s=1e6).ran <= 2


def test_extra_repeats_that_fail_do_not_go_on_for_ever(directory: Path) -> None:
    def run(point: Point) -> dict[str, Any]:
        if point.repeat >= 2:
            raise RunError("no")
        return make(point, STEADY_GBPS * (1 + point.order))

    outcome = sweep(directory, run, budget_s=1e6)
    assert outcome.done == RUNS and outcome.ran == RUNS + 4  # one block


def samples(*goodputs: float, steal: float = 0.0, valid: bool = True) -> list[Sample]:
    return [Sample({"impl": "x"}, at, value, steal, valid) for at, value in enumerate(goodputs)]


def test_the_gates() -> None:
    assert find_unsteady(samples(10, 10.2, 9.9)) == []
    (found,) = find_unsteady(samples(10, 12, 9))
    # standard deviation 1.53 of a mean of 10.33
    assert "varies by 15 %" in found.reason and "3 runs" in found.reason and found.wants_more
    assert find_unsteady(samples(10)) == [] and count_judged(samples(10)) == 0
    assert find_unsteady(samples(10, 12, 9, valid=False)) == []
    (found,) = find_unsteady(samples(10, 10, steal=3.0))
    assert "3.0 % of the CPU time" in found.reason and found.wants_more
    # Noisy for good, but the median is known: more repeats help nobody.
    (found,) = find_unsteady(samples(*[10.0] * 12, 14.0))
    assert not found.wants_more
    (found,) = find_unsteady(samples(*[5.0, 10.0, 20.0] * 5))
    assert not found.wants_more and noise.MOST_REPEATS == 15
    assert find_unsteady(samples(0, 0, 0)) == []


@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=14), st.sampled_from([0.25, 2.0, 1024.0]))
def test_noise_has_no_unit(goodputs: list[float], factor: float) -> None:
    scaled = [value * factor for value in goodputs]
    assert bool(find_unsteady(samples(*goodputs))) == bool(find_unsteady(samples(*scaled)))


def test_progress_in_a_log(directory: Path) -> None:
    stream, seconds = io.StringIO(), iter(range(0, 10_000, 4))
    path = directory.parent / "tiny.toml"
    path.write_text(EXPERIMENT)
    with SweepProgress("tiny", stream=stream, clock=lambda: float(next(seconds))) as progress:
        perform(load(path), directory, progress=progress, run=lambda p: make(p) if p.order else fail(p))
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("tiny: 1 of 8: impl=") and lines[0].endswith("10 s left")
    assert sum("failed: sender: gone" in line for line in lines) == 2
    assert 2 < len(lines) < 12


def fail(_point: Point) -> dict[str, Any]:
    raise RunError("sender: gone")


def test_outcome_in_words(directory: Path) -> None:
    outcome = sweep(directory, lambda p: invalid(p) if p.order == 1 else fail(p) if p.order == 2 else make(p))
    lines = outcome_lines("tiny", RUNS, outcome, verbose=False)
    assert lines[0].startswith(f"tiny: 7 of 8 runs are in {directory} (9 run now, ")
    assert "1 failed (all attempts: failures.jsonl)" in lines
    assert "1 invalid: kept, never averaged" in lines
    assert "noise: none of 2 points is noisy" in lines
    many = replace(outcome, noisy=[f"point {n}" for n in range(30)], interrupted=True)
    lines = outcome_lines("tiny", RUNS, many, verbose=False)
    assert "  and 27 more (-v shows them)" in lines and "point 3" not in "".join(lines)
    assert lines[-1] == "interrupted: run the same command again to go on"
    assert "  point 29" in outcome_lines("tiny", RUNS, many, verbose=True)


def test_plan_in_words() -> None:
    lines = plan_lines("tiny", "Does it hold?", points=4, repeats=2, there=3, run_s=20)
    assert lines == [
        "Does it hold?",
        "tiny: 4 points x 2 repeats = 8 runs, about 3 min; 3 are done, about 2 min left",
    ]
    times = {0.2: "0 s", 89: "89 s", 91: "2 min", 3600: "1 h 00 min", 3900: "1 h 05 min"}
    assert {seconds: format_minutes(seconds) for seconds in times} == times


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_under_sudo_everything_belongs_to_who_called_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1234")
    deeper = directory / "a" / "b"
    directory.mkdir()
    path = directory / "tiny.toml"
    path.write_text(EXPERIMENT)
    progress = SweepProgress("tiny", quiet=True)
    perform(load(path), deeper, progress=progress, run=lambda p: fail(p) if p.order == 1 else make(p))
    made = [place for place in directory.rglob("*") if place != path]
    assert {"a", "b", records_file.NAME, "experiment.toml", "failures.jsonl"} <= {
        place.name for place in made
    }
    assert {(place.stat().st_uid, place.stat().st_gid) for place in made} == {(1234, 1234)}


HERE = TEMPLATE["machine"]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("kernel", "6.18.44-fc-v657", "made on 6.18.44-fc-v657, this is {}: choose another --out"),
        ("hostname", "elsewhere", "made on hostname elsewhere, this is hostname {}: choose another --out"),
        ("cpu_model", "AMD EPYC", "made on cpu_model AMD EPYC, this is cpu_model {}: choose another --out"),
        ("governor", "powersave", "made on governor powersave, this is governor {}: choose another --out"),
    ],
)
def test_what_another_machine_has_made_is_not_gone_on_with(
    key: str, value: str, said: str, directory: Path
) -> None:
    """Not even where every run is there, so that nothing would be run."""
    sweep(directory, lambda point: make(point, **{key: value}))  # type: ignore[arg-type]
    wanted = f"{directory}: {said.format(HERE[key])}"
    with pytest.raises(UsageError) as refused:
        refuse_foreign(directory, HERE)
    assert str(refused.value) == wanted
    runs: list[Point] = []
    outcome = sweep(directory, lambda point: runs.append(point) or make(point), here=HERE)  # type: ignore[func-returns-value]
    assert outcome.stopped == wanted and runs == [] and not outcome.complete
    refuse_foreign(directory, HERE | {key: value})


def test_what_two_other_hosts_have_made_is_gone_on_with_and_never_with_another_kernel_of_theirs(
    directory: Path,
) -> None:
    """This machine has no part in it, and its own kernel may be any."""
    between = derive(on_two_hosts(raw_record("one_copy")))
    here = HERE | {"hostname": "vm", "kernel": "6.18.44"}

    def far(point: Point, kernel: str = "7.2.13") -> dict[str, Any]:
        places = {side: dict(place) for side, place in between["places"].items()}
        places["receiver"]["machine"] = places["receiver"]["machine"] | {"kernel": kernel}
        return between | {"run": {**between["run"], **make(point)["run"]}, "places": places}

    assert sweep(directory, far, here=here).complete
    refuse_foreign(directory, here)
    records_file.write(file_of(directory), kept(directory)[1:])
    stopped = sweep(directory, lambda point: far(point, "7.3.0"), here=here).stopped
    assert stopped is not None and "web2: machine.kernel: 7.2.13 and 7.3.0: results of two" in stopped


def test_reference_results_are_not_gone_on_with(directory: Path) -> None:
    (directory.parent / ".reference").write_text("")
    with pytest.raises(UsageError, match="reference results, of another machine: choose another --out"):
        refuse_foreign(directory, HERE)


def test_a_sweep_has_the_kernel_in_its_place_and_quick_is_what_make_runs() -> None:
    here = os.uname()
    place = default_directory(load(EXPERIMENTS / "quick.toml"))
    assert place.parts[-2:] == (f"{here.nodename}-{here.release}", "quick")
    shown = subprocess.run(
        ["make", "-n", "sweep"], cwd=paths.ROOT, capture_output=True, text=True, check=True
    )
    assert "copyscope sweep quick" in shown.stdout

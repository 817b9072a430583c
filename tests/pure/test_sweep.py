# SPDX-License-Identifier: GPL-2.0-only
"""Sweeps with invented runs: whatever interrupts a sweep, each run has exactly one record."""

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
from builders.documents import derive, typed_whole
from builders.sweep import kept
from builders.two_hosts import on_two_hosts
from copyscope.base import paths
from copyscope.base.errors import MachineError, RecordError, RunError, UsageError
from copyscope.base.spelling import format_minutes
from copyscope.commands.sweep import EXPERIMENTS, SweepProgress, default_directory, outcome_lines, plan_lines
from copyscope.record import store
from copyscope.record.run import Run
from copyscope.record.store import without_derived
from copyscope.sweep.directory import refuse_foreign
from copyscope.sweep.experiment import Experiment, ExperimentPoint, expand, identify, load
from copyscope.sweep.results import rewrite
from copyscope.sweep.sweep import (
    NOISY_REPEATS_MAX,
    NoiseSample,
    Outcome,
    count_judged,
    find_unsteady,
    perform,
)
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
    """Exception that replaces SIGKILL: no code of the sweep handles it."""


def make(point: ExperimentPoint, goodput_gbps: float = STEADY_GBPS, **machine: Any) -> dict[str, Any]:
    """Return the record of a valid run."""
    run: dict[str, Any] = {"id": point.run_id, "experiment": "tiny", "factors": point.factors}
    run |= {"repeat": point.repeat, "order": point.order}
    return {
        **TEMPLATE,
        "run": {**TEMPLATE["run"], **run},
        "machine": {**TEMPLATE["machine"], "steal_percent": 0.0, **machine},
        "throughput_gbps": {**TEMPLATE["throughput_gbps"], "unprobed": goodput_gbps},
    }


def invalid(point: ExperimentPoint) -> dict[str, Any]:
    verdict = {**TEMPLATE["verdict"], "valid": False, "reasons": ["too short: 3 ms"]}
    return {**make(point), "verdict": verdict}


def sweep(
    directory: Path, run: Callable[[ExperimentPoint], dict[str, Any]], text: str = EXPERIMENT, **options: Any
) -> Outcome:
    path = directory.parent / f"{directory.name}.toml"
    path.write_text(text)
    progress = SweepProgress("tiny", quiet=True, stream=io.StringIO())
    return perform(load(path), directory, progress=progress, run=lambda p: typed_whole(run(p)), **options)


def experiment_of(directory: Path) -> Experiment:
    return load(directory / "experiment.toml")


def recorded_ids(directory: Path) -> set[str]:
    return {record["run"]["id"] for record in kept(directory)} if file_of(directory).exists() else set()


def file_of(directory: Path) -> Path:
    return directory / store.RECORDS_NAME


def planned(directory: Path) -> list[ExperimentPoint]:
    return expand(experiment_of(directory))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "results" / "host" / "tiny"


@pytest.fixture(autouse=True)
def parents(directory: Path) -> None:
    directory.parent.mkdir(parents=True)


def test_every_run_is_performed_once_in_the_planned_order(directory: Path) -> None:
    order: list[ExperimentPoint] = []

    def run(point: ExperimentPoint) -> dict[str, Any]:
        order.append(point)
        return make(point)

    outcome = sweep(directory, run)
    assert order == planned(directory) and len(order) == RUNS
    assert recorded_ids(directory) == {point.run_id for point in order}
    assert outcome.complete and (outcome.done, outcome.ran, outcome.judged) == (RUNS, RUNS, 4)
    assert (directory / "experiment.toml").read_text() == EXPERIMENT
    for point, record in zip(order, kept(directory), strict=True):
        assert record["run"]["id"] == point.run_id
        assert record["run"]["factors"] == point.factors and record["run"]["order"] == point.order
    rewrite(directory, without_derived)
    again = sweep(directory, run)
    assert len(order) == RUNS and again.complete and (again.done, again.ran) == (RUNS, 0)


@settings(max_examples=16)
@given(st.lists(st.tuples(st.integers(0, RUNS), st.sampled_from(MOMENTS)), max_size=6))
def test_each_run_is_recorded_once_whatever_interrupts_the_sweep(
    interruptions: list[tuple[int, str]],
) -> None:
    """The sweep is killed during a run, while it writes a record or afterwards, or stopped by Ctrl-C."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "tiny"
        ran: Counter[str] = Counter()
        for after, moment in [*interruptions, (RUNS + 1, "never")]:
            done = 0
            before = recorded_ids(directory) if directory.exists() else set()

            def run(
                point: ExperimentPoint, after: int = after, moment: str = moment, before: set[str] = before
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
        assert recorded_ids(directory) == {point.run_id for point in planned(directory)}
        assert set(ran.values()) == {1} and len(ran) == RUNS
        assert len(kept(directory)) == RUNS
        # The file contains no part of a record.
        assert file_of(directory).read_bytes() == b"".join(map(store.compressed_line, kept(directory)))


def test_earlier_records_are_decompressed_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sweep(directory, make).complete
    inflated: list[int] = []
    inflate = store._member

    def count(data: bytes, at: int) -> store.Member:
        inflated.append(at)
        return inflate(data, at)

    monkeypatch.setattr(store, "_member", count)
    assert sweep(directory, fail).complete and len(inflated) == RUNS


def test_a_failed_run_is_logged_and_retried_at_the_end(directory: Path) -> None:
    attempts: list[str] = []

    def run(point: ExperimentPoint) -> dict[str, Any]:
        attempts.append(point.run_id)
        if point.order == 2 or (point.order == 4 and attempts.count(point.run_id) == 1):
            raise RunError("sender: ended by SIGKILL")
        return make(point)

    outcome = sweep(directory, run)
    runs = [point.run_id for point in planned(directory)]
    assert attempts == [*runs, runs[2], runs[4]]
    assert not outcome.complete and outcome.done == RUNS - 1 and outcome.left == 0
    (reason,) = outcome.failed
    assert "ended by SIGKILL" in reason and "impl=" in reason
    rows = [json.loads(line) for line in (directory / "failures.jsonl").read_text().splitlines()]
    assert [row["run_id"] for row in rows] == [runs[2], runs[4], runs[2]]
    assert all(row["reason"] == "sender: ended by SIGKILL" for row in rows)
    assert rows[0]["factors"] == planned(directory)[2].factors and rows[0]["repeat"] == 0
    # The next call repeats only the failed run.
    attempts.clear()
    assert sweep(directory, make).complete


def test_a_point_that_the_machine_cannot_run_fails_alone(directory: Path) -> None:
    def run(point: ExperimentPoint) -> dict[str, Any]:
        if point.factors["size"] == 65536:
            raise MachineError("pages: hugetlb: 0 free")
        return make(point)

    outcome = sweep(directory, run, budget_s=1e6)
    assert outcome.done == RUNS // 2 and len(outcome.failed) == RUNS // 2


def test_a_failure_after_half_a_line_starts_a_new_line(directory: Path) -> None:
    directory.mkdir()
    (directory / "failures.jsonl").write_text('{"run_id": "tiny-')

    sweep(directory, fail)
    cut, *rows = (directory / "failures.jsonl").read_text().splitlines()
    assert cut == '{"run_id": "tiny-' and len([json.loads(row) for row in rows]) == 2 * RUNS


def test_an_invalid_run_is_kept_and_not_repeated(directory: Path) -> None:
    calls: Counter[str] = Counter()

    def run(point: ExperimentPoint) -> dict[str, Any]:
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
    names = [f"{file_of(directory)}: line {number}: " for number in (1, 2, 3)]
    assert [message.startswith(name) for message, name in zip(outcome.damaged, names, strict=True)] == [
        True
    ] * 3
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
    append = store.append_record

    def full(path: Path, measured_run: Run) -> None:
        if measured_run.raw.run.order == 5:
            raise RecordError(f"{path}: cannot be written: No space left on device")
        append(path, measured_run)

    monkeypatch.setattr(store, "append_record", full)
    monkeypatch.setattr("tempfile.tempdir", str(directory.parent))  # directory for the rescued record
    outcome = sweep(directory, make)
    assert outcome.done == 5 and outcome.stopped and "No space left on device" in outcome.stopped
    monkeypatch.undo()
    assert sweep(directory, make).ran == RUNS - 5


def test_another_experiment_in_the_directory_is_refused(directory: Path) -> None:
    sweep(directory, make)
    with pytest.raises(UsageError, match=r"factors\.size differs from .*choose another --out"):
        sweep(directory, make, EXPERIMENT.replace("4K", "8K"))
    with pytest.raises(UsageError, match=r"duration_s differs"):
        sweep(directory, make, EXPERIMENT.replace("0.5", "0.6"))
    assert (directory / "experiment.toml").read_text() == EXPERIMENT


def test_more_repeats_and_other_comments_are_the_same_experiment(directory: Path) -> None:
    sweep(directory, make)
    outcome = sweep(directory, make, "# A comment\n" + EXPERIMENT.replace("repeats = 2", "repeats = 3"))
    assert outcome.complete and (outcome.done, outcome.ran) == (12, 4)
    assert (directory / "experiment.toml").read_text() == EXPERIMENT


def test_a_half_copied_experiment_is_copied_again(directory: Path) -> None:
    directory.mkdir()
    (directory / "experiment.toml").write_text(EXPERIMENT[:20])
    assert sweep(directory, make).complete
    assert (directory / "experiment.toml").read_text() == EXPERIMENT


def test_two_machines_are_not_mixed(directory: Path) -> None:
    sweep(directory, lambda point: make(point) if point.order < 2 else stop(point))
    outcome = sweep(directory, lambda point: make(point, kernel="7.2.0"))
    assert outcome.stopped and "machine.kernel" in outcome.stopped and "7.2.0" in outcome.stopped
    assert len(recorded_ids(directory)) == 2


def stop(_point: ExperimentPoint) -> dict[str, Any]:
    raise KeyboardInterrupt


def test_two_sweeps_at_once_are_not_mixed(directory: Path) -> None:
    def run(point: ExperimentPoint) -> dict[str, Any]:
        with pytest.raises(RunError, match="another sweep"):
            sweep(directory, make)
        return make(point)

    assert sweep(directory, run).complete


def test_a_directory_that_cannot_be_created_is_an_error(directory: Path) -> None:
    directory.write_text("a file")
    with pytest.raises(RunError, match=r"tiny.*choose another --out"):
        sweep(directory, make)


def noisy_runs(noisy: Callable[[ExperimentPoint], bool]) -> Callable[[ExperimentPoint], dict[str, Any]]:
    generator = random.Random(1)
    return lambda point: make(point, STEADY_GBPS * (generator.uniform(0.5, 2) if noisy(point) else 1.0))


def test_noisy_points_are_repeated_with_their_rivals_within_the_budget(directory: Path) -> None:
    run = noisy_runs(lambda point: point.factors == {"impl": "one_copy", "size": 4096})
    first = sweep(directory, run)
    assert first.complete and first.extra == 0  # no budget, no extra repeats
    assert len(first.noisy) == 1 and first.noisy[0].startswith("impl=one_copy size=4K: goodput varies by")
    # A block of two runs takes about 2.6 s, which exceeds a budget of 2 s.
    assert sweep(directory, run, budget_s=2).extra == 0
    outcome = sweep(directory, run, budget_s=1e6)
    extra = [record["run"] for record in kept(directory)]
    extra = [row for row in extra if row["repeat"] >= 2]
    assert len(extra) == outcome.extra > 0
    assert {identify(row["factors"]) for row in extra} == {
        identify({"impl": impl, "size": 4096}) for impl in ("one_copy", "two_copy")
    }
    assert set(Counter(row["repeat"] for row in extra).values()) == {2}  # complete blocks of two runs
    assert len({row["order"] for row in extra}) == len(extra) and min(row["order"] for row in extra) == RUNS
    assert max(row["repeat"] for row in extra) < NOISY_REPEATS_MAX
    # Existing repeats count for the next call.
    assert sweep(directory, run, budget_s=1e6).ran <= 2


def test_failing_extra_repeats_end_the_sweep(directory: Path) -> None:
    def run(point: ExperimentPoint) -> dict[str, Any]:
        if point.repeat >= 2:
            raise RunError("no")
        return make(point, STEADY_GBPS * (1 + point.order))

    outcome = sweep(directory, run, budget_s=1e6)
    assert outcome.done == RUNS and outcome.ran == RUNS + 4  # one block


def samples(*goodputs: float, steal: float = 0.0, valid: bool = True) -> list[NoiseSample]:
    return [
        NoiseSample({"impl": "x"}, order, goodput, steal, valid) for order, goodput in enumerate(goodputs)
    ]


def test_a_noisy_point_gets_more_repeats_up_to_a_limit() -> None:
    assert find_unsteady(samples(10, 10.2, 9.9)) == []
    (unsteady,) = find_unsteady(samples(10, 12, 9))
    # standard deviation 1.53, mean 10.33
    assert "varies by 15 %" in unsteady.reason and "3 runs" in unsteady.reason and unsteady.wants_more
    assert find_unsteady(samples(10)) == [] and count_judged(samples(10)) == 0
    assert find_unsteady(samples(10, 12, 9, valid=False)) == []
    (unsteady,) = find_unsteady(samples(10, 10, steal=3.0))
    assert "3.0 % of the CPU time" in unsteady.reason and unsteady.wants_more
    # The point stays noisy, but its median is known well enough: more repeats would not help.
    (unsteady,) = find_unsteady(samples(*[10.0] * 12, 14.0))
    assert not unsteady.wants_more
    (unsteady,) = find_unsteady(samples(*[5.0, 10.0, 20.0] * 5))
    assert not unsteady.wants_more and NOISY_REPEATS_MAX == 15
    assert find_unsteady(samples(0, 0, 0)) == []


@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=14), st.sampled_from([0.25, 2.0, 1024.0]))
def test_noise_does_not_depend_on_the_unit(goodputs: list[float], factor: float) -> None:
    scaled = [value * factor for value in goodputs]
    assert bool(find_unsteady(samples(*goodputs))) == bool(find_unsteady(samples(*scaled)))


def test_progress_in_a_log_has_few_lines(directory: Path) -> None:
    stream, seconds = io.StringIO(), iter(range(0, 10_000, 4))
    path = directory.parent / "tiny.toml"
    path.write_text(EXPERIMENT)
    with SweepProgress("tiny", stream=stream, clock=lambda: float(next(seconds))) as progress:
        perform(
            load(path),
            directory,
            progress=progress,
            run=lambda p: typed_whole(make(p) if p.order else fail(p)),
        )
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("tiny: 1 of 8: impl=") and lines[0].endswith("10 s left")
    assert sum("failed: sender: gone" in line for line in lines) == 2
    assert 2 < len(lines) < 12


def fail(_point: ExperimentPoint) -> dict[str, Any]:
    raise RunError("sender: gone")


def test_the_outcome_names_failed_and_invalid_runs_and_noise(directory: Path) -> None:
    outcome = sweep(directory, lambda p: invalid(p) if p.order == 1 else fail(p) if p.order == 2 else make(p))
    lines = outcome_lines("tiny", RUNS, outcome, verbose=False)
    assert lines[0].startswith(f"tiny: 7 of 8 runs are in {directory} (9 run now, ")
    assert "1 failed run (all attempts are in failures.jsonl)" in lines
    assert "1 invalid run (invalid runs are kept, but never averaged)" in lines
    assert "noise: none of 2 points is noisy" in lines
    many = replace(outcome, noisy=[f"point {n}" for n in range(30)], interrupted=True)
    lines = outcome_lines("tiny", RUNS, many, verbose=False)
    assert "  and 27 more (-v shows the whole list)" in lines and "point 3" not in "".join(lines)
    assert lines[-1] == "interrupted; run the same command again to go on"
    assert "  point 29" in outcome_lines("tiny", RUNS, many, verbose=True)


def test_the_plan_has_numbers_of_runs_and_minutes() -> None:
    lines = plan_lines("tiny", "Does it hold?", points=4, repeats=2, finished_runs=3, run_s=20)
    assert lines == [
        "Does it hold?",
        "tiny: 4 points x 2 repeats = 8 runs, about 3 min; 3 are done, about 2 min left",
    ]
    times = {0.2: "0 s", 89: "89 s", 91: "2 min", 3600: "1 h 00 min", 3900: "1 h 05 min"}
    assert {seconds: format_minutes(seconds) for seconds in times} == times


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_under_sudo_all_files_belong_to_the_invoking_user(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1234")
    output_directory = directory / "a" / "b"
    directory.mkdir()
    path = directory / "tiny.toml"
    path.write_text(EXPERIMENT)
    progress = SweepProgress("tiny", quiet=True)
    perform(
        load(path),
        output_directory,
        progress=progress,
        run=lambda p: typed_whole(fail(p) if p.order == 1 else make(p)),
    )
    created = [entry for entry in directory.rglob("*") if entry != path]
    assert {"a", "b", store.RECORDS_NAME, "experiment.toml", "failures.jsonl"} <= {
        entry.name for entry in created
    }
    assert {(entry.stat().st_uid, entry.stat().st_gid) for entry in created} == {(1234, 1234)}


HERE = TEMPLATE["machine"]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "kernel",
            "6.18.44-fc-v657",
            "made on 6.18.44-fc-v657, but this machine has {}; choose another --out",
        ),
        (
            "hostname",
            "elsewhere",
            "made on hostname elsewhere, but this machine has hostname {}; choose another --out",
        ),
        (
            "cpu_model",
            "AMD EPYC",
            "made on cpu_model AMD EPYC, but this machine has cpu_model {}; choose another --out",
        ),
        (
            "governor",
            "powersave",
            "made on governor powersave, but this machine has governor {}; choose another --out",
        ),
    ],
)
def test_a_sweep_of_another_machine_is_not_resumed(
    key: str, value: str, message: str, directory: Path
) -> None:
    """The sweep is refused even if all its runs are complete."""
    sweep(directory, lambda point: make(point, **{key: value}))  # type: ignore[arg-type]
    expected = f"{directory}: {message.format(HERE[key])}"
    with pytest.raises(UsageError) as refused:
        refuse_foreign(directory, HERE)
    assert str(refused.value) == expected
    runs: list[ExperimentPoint] = []
    outcome = sweep(directory, lambda point: runs.append(point) or make(point), here=HERE)  # type: ignore[func-returns-value]
    assert outcome.stopped == expected and runs == [] and not outcome.complete
    refuse_foreign(directory, HERE | {key: value})


def test_a_sweep_between_two_hosts_is_resumed_unless_their_kernel_changed(
    directory: Path,
) -> None:
    """The kernel of this machine does not matter: sender and receiver run on other machines."""
    template = derive(on_two_hosts(raw_record("one_copy")))
    here = HERE | {"hostname": "vm", "kernel": "6.18.44"}

    def run_between_hosts(point: ExperimentPoint, kernel: str = "7.2.13") -> dict[str, Any]:
        places = {side: dict(host) for side, host in template["places"].items()}
        places["receiver"]["machine"] = places["receiver"]["machine"] | {"kernel": kernel}
        return template | {"run": {**template["run"], **make(point)["run"]}, "places": places}

    assert sweep(directory, run_between_hosts, here=here).complete
    refuse_foreign(directory, here)
    store.write_records(file_of(directory), kept(directory)[1:])
    stopped = sweep(directory, lambda point: run_between_hosts(point, "7.3.0"), here=here).stopped
    assert stopped is not None and "web2: machine.kernel: 7.2.13 and 7.3.0: results of two" in stopped


def test_reference_results_are_not_resumed(directory: Path) -> None:
    (directory.parent / ".reference").write_text("")
    with pytest.raises(UsageError, match="reference results of another machine; choose another --out"):
        refuse_foreign(directory, HERE)


def test_the_directory_is_named_after_host_and_kernel_and_make_sweep_runs_quick() -> None:
    here = os.uname()
    directory = default_directory(load(EXPERIMENTS / "quick.toml"))
    assert directory.parts[-2:] == (f"{here.nodename}-{here.release}", "quick")
    shown = subprocess.run(
        ["make", "-n", "sweep"], cwd=paths.ROOT, capture_output=True, text=True, check=True
    )
    assert "copyscope sweep quick" in shown.stdout

# SPDX-License-Identifier: GPL-2.0-only
"""Sweeps of simulated machines: a run is a boot, has one record, and is never mixed with measured runs."""

import io
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from builders.documents import typed_boot
from builders.simulated import simulated_record
from builders.sweep import kept
from copyscope.base import paths
from copyscope.base.errors import RunError, UsageError
from copyscope.commands import crossover, record_files
from copyscope.commands.sweep import SweepProgress
from copyscope.plan import options
from copyscope.record.derived import SimulatedRun
from copyscope.run.simulate import simulation
from copyscope.run.simulate.request import Request
from copyscope.sweep import results
from copyscope.sweep.directory import refuse_foreign
from copyscope.sweep.experiment import expand, load, points_in, run_s, runs_of
from copyscope.sweep.runner import BootRunner
from copyscope.sweep.sweep import Outcome, perform

pytestmark = pytest.mark.timeout(20)

EXPERIMENT = """\
name = "lines"
question = "How many lines?"
expected = "1m"
repeats = 2
seed = 5
[factors]
impl = ["two_copy", "one_copy"]
size = ["1K", "64K"]
cache = ["generic", "laptop"]
[fixed]
simulate = true
[[exclude]]
cache = "laptop"
size = "1K"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lines.toml"
    path.write_text(EXPERIMENT)
    return path


@pytest.fixture(scope="module", autouse=True)
def cached_option_checks() -> Iterator[None]:
    """Cache the answers of the traffic program, which every boot of every test would request again."""
    check = options._check_by_traffic
    cached = cache(lambda words: json.dumps(check(list(words))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "_check_by_traffic", lambda words: json.loads(cached(tuple(words))))
        yield


class FakeQemu:
    """Replacement for QEMU that stores requests, and raises `error` at the boot with index `failing`."""

    def __init__(self, failing: int | None = None, error: BaseException | None = None, **counts: int) -> None:
        self.requests: list[Request] = []
        self._failing, self._error, self._counts = failing, error, counts

    def __call__(self, request: Request, **_: Any) -> SimulatedRun:
        self.requests.append(request)
        if len(self.requests) - 1 == self._failing and self._error is not None:
            raise self._error
        return typed_boot(simulated_record(seeds=request.seeds, **self._counts))


def sweep(file: Path, qemu: FakeQemu, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    monkeypatch.setattr(simulation, "simulate", qemu)
    experiment = load(file)
    runner = BootRunner(experiment)
    assert runner.prepare(runs_of(experiment)) == []
    progress = SweepProgress("lines", quiet=True, stream=io.StringIO())
    return perform(experiment, file.parent / "out", progress=progress, run=runner, here={"kernel": "6.18"})


def test_strategies_and_sizes_share_a_boot_and_a_repeat_has_another_seed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu = FakeQemu()
    assert sweep(file, qemu, monkeypatch).complete
    # Two repeats. generic: 2 strategies x 2 sizes; laptop: 64 KiB only.
    boots = sorted((request.model.name, request.seeds, len(request.measured)) for request in qemu.requests)
    assert boots == [
        *(("generic", (5,), 4), ("generic", (6,), 4)),
        *(("laptop", (5,), 2), ("laptop", (6,), 2)),
    ]
    # The largest size comes first, with a longer warm-up, so that no strategy pays for untouched pages.
    for request in qemu.requests:
        first, *others = request.measured
        assert (first.size_bytes, first.warm) == (65536, 6 * 64) and {
            measurement.warm for measurement in others
        } <= {64, 1024}
    assert {
        (measurement.impl, measurement.size_bytes)
        for request in qemu.requests
        if len(request.measured) == 2
        for measurement in request.measured
    } == {
        ("one_copy", 65536),
        ("two_copy", 65536),
    }


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), RunError("guest: silent for 180 s")], ids=["^C", "hung"]
)
def test_an_interrupted_sweep_resumes(
    file: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu = FakeQemu(2, error)
    first = sweep(file, qemu, monkeypatch)
    assert first.interrupted == isinstance(error, KeyboardInterrupt)
    # The retry has another seed, because the same seed would fail in the same way.
    assert first.interrupted or qemu.requests[-1].seeds == (qemu.requests[2].seeds[0] + 1000,)
    before = kept(file.parent / "out")
    # A failed boot is tried once more at the end. Ctrl-C ends the sweep.
    assert len(before) == (2 if first.interrupted else 4)
    second_qemu = FakeQemu()
    second = sweep(file, second_qemu, monkeypatch)
    assert second.complete and len(second_qemu.requests) == 4 - len(before)
    after = kept(file.parent / "out")
    assert after[: len(before)] == before
    assert {record["run"]["id"] for record in after} == {point.run_id for point in expand(load(file))}


def test_a_boot_with_a_failed_check_is_kept_as_invalid(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = sweep(file, FakeQemu(sent=64 * 1024), monkeypatch)
    assert len(outcome.invalid) == outcome.done == 4 and not outcome.complete


def test_simulated_runs_are_not_read_as_measurements(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep(file, FakeQemu(), monkeypatch)
    out = file.parent / "out"
    loaded = results.load(out)
    assert loaded.records == () and loaded.left_out == () and len(loaded.modelled) == 4
    with pytest.raises(UsageError, match=r"out: modelled, not measured; "):
        record_files.load_sweep(out)
    assert crossover.main([str(out)]) == 2
    # Another machine may resume the sweep, because the simulated machine is the same.
    refuse_foreign(out, {"kernel": "another", "hostname": "another"})


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "seed = 5",
            "seed = 5\nduration_s = 1.0",
            "duration_s: a simulated machine counts messages; remove duration_s",
        ),
        ('"laptop"]', '"abacus"]', "factors.cache: abacus: unknown model; choose generic"),
        (
            "simulate = true",
            "simulate = true\nseeds = 3",
            "fixed.seeds: belongs at the top of the file, as repeats",
        ),
        (
            "simulate = true",
            'simulate = true\nsender = "loop"',
            "fixed.sender: not available in a simulated machine",
        ),
        ("impl =", "simulate = [true, false]\nimpl =", "factors.simulate: belongs in [fixed]"),
        ("simulate = true", "messages = 9", "factors.cache: only for a simulated machine"),
    ],
)
def test_mistakes_in_a_simulated_experiment_are_named(file: Path, old: str, new: str, words: str) -> None:
    text = EXPERIMENT.replace(old, new)
    assert text != EXPERIMENT
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        load(file)
    assert words in str(caught.value) and str(caught.value).startswith(f"{file}:")


def test_the_committed_experiment_takes_less_than_15_minutes() -> None:
    experiment = load(paths.ROOT / "experiments" / "simulated.toml")
    assert len(expand(experiment)) * run_s(experiment) < 15 * 60
    at_64k = {
        (boot["cache"], point["working_set"] * 65536)
        for boot in runs_of(experiment)
        for point in points_in(experiment, boot)
        if (point["impl"], point["size"], boot["topology"]) == ("zero_copy", 65536, "veth")
    }
    # for both models: ring buffers that fit into L2, fit into the LLC, and exceed the LLC
    assert at_64k == {(cache, kib << 10) for cache in ("generic", "laptop") for kib in (256, 4096, 65536)}

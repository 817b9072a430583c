"""Sweeps of simulated machines: a boot is a run, each is there once, and none is taken for a measured one."""

import io
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from builders.simulated import simulated_record
from builders.sweep import kept
from copyscope import paths
from copyscope.commands import crossover, reading
from copyscope.errors import RunError, UsageError
from copyscope.plan import options
from copyscope.show.sweep import SweepProgress
from copyscope.simulate import simulation
from copyscope.simulate.request import Request
from copyscope.sweep import results
from copyscope.sweep.directory import refuse_foreign
from copyscope.sweep.experiment import expand, load, points_in, run_s, runs_of
from copyscope.sweep.simulated_runner import BootRunner
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
def asked_once() -> Iterator[None]:
    """The traffic program is asked about the same words once, not by each boot of each test."""
    ask = options._ask_traffic
    kept = cache(lambda words: json.dumps(ask(list(words))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "_ask_traffic", lambda words: json.loads(kept(tuple(words))))
        yield


class Booted:
    """Stands for QEMU: remembers what was asked, and stops at one boot, as by Ctrl-C."""

    def __init__(self, at: int | None = None, how: BaseException | None = None, **said: int) -> None:
        self.asked: list[Request] = []
        self._at, self._how, self._said = at, how, said

    def __call__(self, asked: Request, _: Any) -> dict[str, Any]:
        self.asked.append(asked)
        if len(self.asked) - 1 == self._at and self._how is not None:
            raise self._how
        return simulated_record(seeds=asked.seeds, **self._said)


def sweep(file: Path, booted: Booted, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    monkeypatch.setattr(simulation, "simulate", booted)
    experiment = load(file)
    runner = BootRunner(experiment)
    assert runner.prepare(runs_of(experiment)) == []
    progress = SweepProgress("lines", quiet=True, stream=io.StringIO())
    return perform(experiment, file.parent / "out", progress=progress, run=runner, here={"kernel": "6.18"})


def test_what_is_counted_together_shares_a_boot_and_a_repeat_is_another_seed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted = Booted()
    assert sweep(file, booted, monkeypatch).complete
    # generic: 2 strategies x 2 sizes; laptop: 64 KiB only. Twice.
    found = sorted((one.model.name, one.seeds, len(one.measured)) for one in booted.asked)
    assert found == [
        *(("generic", (5,), 4), ("generic", (6,), 4)),
        *(("laptop", (5,), 2), ("laptop", (6,), 2)),
    ]
    # The largest first, with a longer warm-up: no strategy is alone with the pages that nobody has touched.
    for one in booted.asked:
        first, *others = one.measured
        assert (first.size_bytes, first.warm) == (65536, 6 * 64) and {m.warm for m in others} <= {64, 1024}
    assert {
        (m.impl, m.size_bytes) for one in booted.asked if len(one.measured) == 2 for m in one.measured
    } == {
        ("one_copy", 65536),
        ("two_copy", 65536),
    }


@pytest.mark.parametrize(
    "how", [KeyboardInterrupt(), RunError("guest: silent for 180 s")], ids=["^C", "hung"]
)
def test_a_sweep_goes_on_where_it_stopped(
    file: Path, how: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted = Booted(2, how)
    first = sweep(file, booted, monkeypatch)
    assert first.interrupted == isinstance(how, KeyboardInterrupt)
    # The same seed would fail in the same way.
    assert first.interrupted or booted.asked[-1].seeds == (booted.asked[2].seeds[0] + 1000,)
    before = kept(file.parent / "out")
    # A failed boot is tried once more at the end; Ctrl-C ends everything.
    assert len(before) == (2 if first.interrupted else 4)
    again = Booted()
    second = sweep(file, again, monkeypatch)
    assert second.complete and len(again.asked) == 4 - len(before)
    after = kept(file.parent / "out")
    assert after[: len(before)] == before
    assert {one["run"]["id"] for one in after} == {point.run_id for point in expand(load(file))}


def test_a_boot_whose_check_does_not_hold_is_kept_and_named(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = sweep(file, Booted(sent=64 * 1024), monkeypatch)
    assert len(outcome.invalid) == outcome.done == 4 and not outcome.complete


def test_what_was_modelled_is_no_measurement(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep(file, Booted(), monkeypatch)
    out = file.parent / "out"
    found = results.load(out)
    assert found.records == () and found.left_out == () and len(found.modelled) == 4
    with pytest.raises(UsageError, match=r"out: modelled, not measured: "):
        reading.load(out)
    assert crossover.main([str(out)]) == 2
    # Another machine may go on with it: QEMU is the same.
    refuse_foreign(out, {"kernel": "another", "hostname": "another"})


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "seed = 5",
            "seed = 5\nduration_s = 1.0",
            "duration_s: a simulated machine counts messages: remove it",
        ),
        ('"laptop"]', '"abacus"]', "factors.cache: abacus: use generic"),
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
def test_mistakes_are_named(file: Path, old: str, new: str, words: str) -> None:
    text = EXPERIMENT.replace(old, new)
    assert text != EXPERIMENT
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        load(file)
    assert words in str(caught.value) and str(caught.value).startswith(f"{file}:")


def test_ours_fits_into_a_quarter_of_an_hour_with_every_size_of_working_set() -> None:
    made = load(paths.ROOT / "experiments" / "simulated.toml")
    assert len(expand(made)) * run_s(made) < 15 * 60
    at_64k = {
        (boot["cache"], point["working_set"] * 65536)
        for boot in runs_of(made)
        for point in points_in(made, boot)
        if (point["impl"], point["size"], boot["topology"]) == ("zero_copy", 65536, "veth")
    }
    # inside L2, inside the last level, beyond; of both models
    assert at_64k == {(cache, kib << 10) for cache in ("generic", "laptop") for kib in (256, 4096, 65536)}

"""What make bench says of the tools themselves: how long records grow, and how long 2 % takes."""

import importlib
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import builders
import pytest
from copyscope import paths, stats
from copyscope.ledger.derive import derive
from copyscope.record import store

HERE = paths.ROOT / "tests" / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module


def test_a_long_record_is_a_record_with_more_segments_and_slices(bench: Any) -> None:
    own: ModuleType = bench("own_bench")
    real = derive(builders.raw_record("one_copy"))
    real["workload"]["duration_s"] = 10
    made = own.lengthened(real, 600)
    assert store.validate(derive(made)) == []
    # 300 blocks of the four arms, and the warm-up
    assert len(made["run"]["segments"]) == 1201
    for side in ("sender", "receiver"):
        assert len(made["traffic"][side]["slices"]) == 60 * len(real["traffic"][side]["slices"])
    assert made["samples"] == real["samples"]
    assert len(real["run"]["segments"]) < 100


def test_seconds_for_two_percent_follow_from_the_number_of_samples(bench: Any) -> None:
    """A row of 20 % at 1000 samples a second: n = z^2 (1 - p) / (p 0.02^2), here 38.4 s."""
    precision: ModuleType = bench("precision_numbers")
    samples = [
        precision.sample((seconds, 0.6 * seconds, 0.3 * seconds), 200 * seconds, 1000 * seconds, 30.0)
        for seconds in (1, 2, 4, 8)
    ]
    wanted_s = stats.normal_quantile() ** 2 * 0.8 / (0.2 * 0.02**2) / 1000
    middle, least, most = precision.needed(samples)
    assert middle == pytest.approx(wanted_s, rel=0.01) and least <= middle <= most
    assert precision.fit(samples) == pytest.approx(0.02 * math.sqrt(middle))


def test_the_factor_between_two_tools_is_the_product_of_its_parts(bench: Any) -> None:
    """Ours observes 0.6 of the run, of a sender that is on a CPU half as often, and loses a tenth."""
    numbers: ModuleType = bench("precision_numbers")
    theirs = [numbers.sample((10, 10, 8), 3200, 32_000, 30.0)]
    ours = [numbers.sample((10, 6, 2.4), 864, 8640, 30.0)]
    made = numbers.factor(numbers.parts(numbers.OURS_FAST, ours), numbers.parts(numbers.PERF, theirs))
    wanted = {"observed": 1 / 0.6, "on_cpu": 2.0, "arrived": 1 / 0.9, "share": 1.0}
    assert made == pytest.approx({**wanted, "all": math.prod(wanted.values())})
    seconds = [numbers.needed(samples)[0] for samples in (ours, theirs)]
    assert made["all"] == pytest.approx(seconds[0] / seconds[1], rel=0.01)
    samples = {numbers.OURS_FAST: ours, numbers.PERF: theirs}
    part = {"impl": "one_copy", "account": "copy_in", "samples": samples}
    assert "takes 3.70 times as long" in "\n".join(numbers.lines([part]))


def test_a_row_without_a_sample_has_no_width(bench: Any) -> None:
    precision: ModuleType = bench("precision_numbers")
    empty = [precision.sample((2, 2, 2), 0, 100, 0.0)]
    assert precision.needed(empty) is None
    part = {"impl": "zero_copy", "account": "deferred", "samples": {precision.PERF: empty}}
    assert "n/a: no sample in it" in "\n".join(precision.lines([part]))


def test_what_repeats_differ_by_is_of_one_tool_on_one_row(bench: Any) -> None:
    numbers: ModuleType = bench("precision_numbers")
    ours = [numbers.sample((2, 2, 2), 10_000, 40_000, value) for value in (50.0, 60.0, 55.0)]
    theirs = [numbers.sample((2, 2, 2), 10_000, 40_000, 90.0), numbers.sample((2, 2, 2), 9, 36, 50.0)]
    raw = [{"impl": "one_copy", "account": "copy_in", "samples": {"ours": ours, "theirs": theirs}}]
    assert numbers.spread_of_repeats(raw) == pytest.approx(0.2)
    assert "up to 20 % in ns/KiB" in numbers.repeats_text(raw)
    raw[0]["samples"] = {"theirs": theirs}
    assert numbers.spread_of_repeats(raw) is None and "not known" in numbers.repeats_text(raw)


def test_hooks_are_measured_in_seeded_order_and_told_in_that_of_the_table(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks: ModuleType = bench("hooks_bench")
    monkeypatch.setattr(hooks, "_one_round", lambda row, **_: {"ns": [len(row.what)]})

    def order(seed: int) -> list[str]:
        return [one["what"] for one in hooks._measure(hooks.KINDS, seed, guest=False)]

    names = [row.what for row in hooks.KINDS]
    assert order(1) == order(1) != order(2)
    rounds = [order(1)[at : at + len(names)] for at in range(0, len(order(1)), len(names))]
    assert all(sorted(one) == sorted(names) for one in rounds) and len({*map(tuple, rounds)}) > 1
    made = hooks._joined(hooks._measure(hooks.KINDS, 1, guest=False), hooks.KINDS)
    assert [one["what"] for one in made] == names
    assert made[0]["ns"] == [len(names[0])] * hooks.BLOCKS


def test_each_run_has_a_seed_of_its_own(bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runner: ModuleType = bench("bench")
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    assert runner.next_seed("traffic") == runner.SEED
    (tmp_path / "traffic.json").write_text('{"seed": 7}')
    assert runner.next_seed("traffic") == 8


def test_the_time_to_start_is_no_time_of_sending(bench: Any) -> None:
    ended = bench("contestants").Ended
    assert ended("said", 0.150, 12).less(ended("", 0.005, 9)) == ended("said", pytest.approx(0.145), 3)
    # a sleep more while it starts is none that it slept less later
    assert ended("", 0.150, 8).less(ended("", 0.005, 9)).sleeps == 0


def test_memory_of_a_tool_is_that_of_its_children_too(bench: Any) -> None:
    code = "import os, time; x = bytearray(30 << 20); os.fork() or x.extend(bytes(30 << 20)); time.sleep(0.3)"
    found = bench("own_memory").watched([sys.executable, "-c", code])
    tool = Path(sys.executable).name
    assert found[tool] > 30 << 10 and found["its largest child"] > 60 << 10
    assert found["all together"] > 60 << 10
    text = "\n".join(bench("own_numbers").lines([{"what": "memory", "samples": {"a report": found}}]))
    assert "Peak memory of a report: all together" in text


@pytest.mark.parametrize("name", ["own", "precision"])
def test_the_results_in_the_tree_make_a_table(name: str, bench: Any) -> None:
    path = paths.ROOT / "results" / "bench" / f"{name}.json"
    text = bench("bench_table").table([path])
    assert f"## {name}" in text and "nan" not in text
    assert text.count("\n|") > 6

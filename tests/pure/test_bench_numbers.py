"""What make bench says of the tools themselves: how long records grow, and how long 2 % takes."""

import importlib
import math
from types import ModuleType
from typing import Any

import builders
import pytest
from copyscope import ledger, paths, record, stats

HERE = paths.ROOT / "tests" / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module


def test_a_long_record_is_a_record_with_more_segments_and_slices(bench: Any) -> None:
    own: ModuleType = bench("own_bench")
    real = ledger.derive(builders.raw_record("one_copy"))
    real["workload"]["duration_s"] = 10
    made = own.lengthened(real, 600)
    assert record.validate(ledger.derive(made)) == []
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


@pytest.mark.parametrize("name", ["own", "precision"])
def test_the_results_in_the_tree_make_a_table(name: str, bench: Any) -> None:
    path = paths.ROOT / "results" / "bench" / f"{name}.json"
    text = bench("bench_table").table([path])
    assert f"## {name}" in text and "nan" not in text
    assert text.count("\n|") > 6

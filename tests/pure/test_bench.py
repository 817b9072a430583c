"""make bench: what a comparison comes to, the order of measuring, and the table of the results."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from copyscope import paths
from copyscope.plan.arguments import parser as profile_parser
from copyscope.plan.instruments import SAMPLED
from copyscope.plan.run_plan import traffic_plan

HERE = paths.ROOT / "tests" / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module


def test_each_run_has_a_seed_of_its_own(bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runner: ModuleType = bench("bench")
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    assert runner.next_seed("traffic") == runner.SEED
    (tmp_path / "traffic.json").write_text('{"seed": 7}')
    assert runner.next_seed("traffic") == 8


def test_the_observer_has_the_collector_of_a_default_run(bench: Any) -> None:
    args = profile_parser().parse_args(["--impl", "one_copy"])
    plan = traffic_plan(args, SAMPLED, 1, in_pieces=False)
    assert plan.collector()[1:] == list(bench("observers").COLLECTOR_OPTIONS)


def test_the_time_to_start_is_no_time_of_sending(bench: Any) -> None:
    ended = bench("contestants").Ended
    assert ended("said", 0.150, 12).less(ended("", 0.005, 9)) == ended("said", pytest.approx(0.145), 3)
    # a sleep more while it starts is none that it slept less later
    assert ended("", 0.150, 8).less(ended("", 0.005, 9)).sleeps == 0


def compared(ours: str, peer: str, ratio: float, size_bytes: int = 1024, **keys: Any) -> dict[str, Any]:
    about = {"ours": ours, "peer": peer, "quantity": "gbps", "factors": {"size_bytes": size_bytes}}
    interval = {"ratio": ratio, "low": ratio - 0.01, "high": ratio + 0.01, "pairs": 10}
    return about | interval | {"ours_median": 10 * ratio, "peer_median": 10.0} | keys


@pytest.mark.parametrize(
    ("name", "made", "reached"),
    [
        ("traffic", compared("one_copy", "iperf3", 1.02), "met"),
        ("traffic", compared("one_copy", "iperf3", 1.005), "open"),
        ("traffic", compared("one_copy", "iperf3", 0.98), "missed"),
        ("traffic", compared("one_copy", "bare", 0.991), "met"),  # 0.98 is asked for
        ("uring", compared("uring_zc", "bare_uring_zc", 0.991), "met"),
        ("uring", compared("uring_send", "bare_uring_send", 0.96), "missed"),
        ("traffic", compared("bare", "iperf3", 0.5), None),  # no contest of ours
        ("observer", compared("ours", "off", 0.97, 65536), "missed"),  # 1 %
        ("observer", compared("ours", "off", 0.97, 64), "met"),  # 5 %
        ("observer", compared("perf_record", "off", 0.5), None),
        ("watch", compared("nginx", "alone", 0.985), "met"),
        ("watch", compared("nginx", "alone", 0.93), "missed"),  # 5 %
    ],
)
def test_what_a_goal_comes_to(bench: Any, name: str, made: dict[str, Any], reached: str | None) -> None:
    conclusions = bench("conclusions")
    assert conclusions.reached(made, conclusions.goal_of(name, made)) == reached


def test_the_table_of_the_tree_is_that_of_its_results(bench: Any) -> None:
    runner: ModuleType = bench("bench")
    text = (runner.RESULTS / "README.md").read_text(encoding="utf-8")
    assert text == bench("bench_table").document(runner.RESULTS, runner.NAMES), (
        "bench.py --table makes it again"
    )
    assert all(f"## {path.stem}\n" in text for path in runner.RESULTS.glob("*.json")) and "nan" not in text

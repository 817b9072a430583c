# SPDX-License-Identifier: GPL-2.0-only
"""`make bench`: seeds, start times, the goal of each comparison, and the table of results."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from copyscope.base import paths
from copyscope.plan.arguments import parser as profile_parser
from copyscope.plan.run_plan import traffic_plan
from copyscope.plan.schedule import SAMPLED

HERE = paths.ROOT / "tests" / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module


def test_each_measurement_gets_a_new_seed(
    bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runner: ModuleType = bench("bench")
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    assert runner.next_seed("traffic") == runner.SEED
    (tmp_path / "traffic.json").write_text('{"seed": 7}')
    assert runner.next_seed("traffic") == 8


def test_observer_uses_the_collector_options_of_a_default_run(bench: Any) -> None:
    args = profile_parser().parse_args(["--impl", "one_copy"])
    plan = traffic_plan(args, SAMPLED, 1, in_pieces=False)
    assert plan.collector()[1:] == list(bench("observers").COLLECTOR_OPTIONS)


def test_start_time_is_subtracted_from_the_time_of_sending(bench: Any) -> None:
    ended = bench("contestants").Ended
    assert ended("said", 0.150, 12).less(ended("", 0.005, 9)) == ended("said", pytest.approx(0.145), 3)
    # A program that sleeps more often while it starts does not get a negative number of sleeps.
    assert ended("", 0.150, 8).less(ended("", 0.005, 9)).sleeps == 0


def compared(ours: str, peer: str, ratio: float, size_bytes: int = 1024, **keys: Any) -> dict[str, Any]:
    about = {"ours": ours, "peer": peer, "quantity": "gbps", "factors": {"size_bytes": size_bytes}}
    interval = {"ratio": ratio, "low": ratio - 0.01, "high": ratio + 0.01, "pairs": 10}
    return about | interval | {"ours_median": 10 * ratio, "peer_median": 10.0} | keys


@pytest.mark.parametrize(
    ("name", "comparison", "reached"),
    [
        ("traffic", compared("one_copy", "iperf3", 1.02), "met"),
        ("traffic", compared("one_copy", "iperf3", 1.005), "open"),
        ("traffic", compared("one_copy", "iperf3", 0.98), "missed"),
        ("traffic", compared("one_copy", "bare", 0.991), "met"),  # the goal is 0.98
        ("uring", compared("uring_zc", "bare_uring_zc", 0.991), "met"),
        ("uring", compared("uring_send", "bare_uring_send", 0.96), "missed"),
        ("traffic", compared("bare", "iperf3", 0.5), None),  # a comparison without copyscope has no goal
        ("observer", compared("ours", "off", 0.97, 65536), "missed"),  # large messages may lose 1 %
        ("observer", compared("ours", "off", 0.97, 64), "met"),  # small messages may lose 5 %
        ("observer", compared("perf_record", "off", 0.5), None),
        ("watch", compared("nginx", "alone", 0.985), "met"),
        ("watch", compared("nginx", "alone", 0.93), "missed"),  # a watched program may lose 5 %
    ],
)
def test_goal_is_met_open_or_missed(
    bench: Any, name: str, comparison: dict[str, Any], reached: str | None
) -> None:
    conclusions = bench("conclusions")
    assert conclusions.reached(comparison, conclusions.goal_of(name, comparison)) == reached


def test_committed_table_matches_the_committed_results(bench: Any) -> None:
    runner: ModuleType = bench("bench")
    text = (runner.RESULTS / "README.md").read_text(encoding="utf-8")
    assert text == bench("bench_table").document(runner.RESULTS, runner.NAMES), (
        "bench.py --table makes it again"
    )
    assert all(f"## {path.stem}\n" in text for path in runner.RESULTS.glob("*.json")) and "nan" not in text

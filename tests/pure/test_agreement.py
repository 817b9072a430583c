"""Two runs of a benchmark: what is the same truth agrees but for chance, what is another one does not."""

import json
import math
import random
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))

import agreement as comparing
from agreement import BY_CHANCE, Pair, agreement, at_most, verdict
from bench_table import document
from conclusions import Conclusion, conclusions
from samples import compare

MACHINE = {"cpu_model": "Example", "cpus": 2, "kernel": "6.18", "hypervisor": None}
PAIRS, NOISE = 10, 0.05
ABOUT = {"started": "2026-11-20T20:00:00+00:00", "git": "0123abc", "used_s": 90.0}


def run(truths: list[float], seed: int) -> dict[str, Any]:
    """A run that measured some ratios, ten pairs of 5 % noise each."""
    noise = random.Random(seed)
    made = []
    for number, truth in enumerate(truths):
        ours = [{"gbps": truth * math.exp(noise.gauss(0, NOISE))} for _ in range(PAIRS)]
        peer = [{"gbps": 1.0}] * PAIRS
        factors = {"size_bytes": 64 << number % 8, "connections": number + 1}
        made.append(
            asdict(compare({"one_copy": ours, "iperf3": peer}, "one_copy", "iperf3", "gbps", factors))
        )
    return {"machine": MACHINE, "comparisons": made, "raw": [], **ABOUT}


def both(a: list[float], b: list[float]) -> comparing.Agreement:
    found = agreement("traffic", run(a, 1), run(b, 2))
    assert found is not None
    return found


def test_the_same_truth_disagrees_no_more_often_than_is_said() -> None:
    # 1 is the worst truth: there the sign is chance
    found = both([1.0] * 250, [1.0] * 250)
    assert len(found.pairs) == 250 and not found.lonely
    assert len(found.disagreeing) <= at_most(250)
    assert "the conclusions agree" in verdict([found])
    assert f"about {250 * BY_CHANCE:.1f} are expected" in verdict([found])


def test_another_truth_is_found_and_named() -> None:
    found = both([1.2] * 20 + [1.0] * 20, [0.8] * 20 + [1.0] * 20)
    assert {pair.now.row for pair in found.disagreeing} >= {pair.now.row for pair in found.pairs[:20]}
    assert "MORE THAN CHANCE" in verdict([found])
    text = "\n".join(comparing.lines([found], {"traffic": ("now", "then")}))
    assert "64 B, 1 connection, one_copy against iperf3, gbps" in text


def test_two_sizes_of_one_effect_agree() -> None:
    assert not both([0.5] * 5, [0.7] * 5).disagreeing


def test_runs_of_two_machines_are_not_compared() -> None:
    other = run([1.0], 1) | {"machine": MACHINE | {"kernel": "6.19"}}
    assert agreement("traffic", run([1.0], 1), other) is None


def test_rows_that_one_run_has_alone_are_named() -> None:
    assert both([1.0, 1.0], [1.0]).lonely == ["128 B, 2 connections, one_copy against iperf3, gbps"]


def row(low: float, high: float, goal: float | None = None, *, at_most: bool = False) -> Conclusion:
    return Conclusion("row", (low + high) / 2, low, high, goal, at_most)


@pytest.mark.parametrize(
    ("now", "earlier", "agrees"),
    [
        (row(0.9, 1.1), row(1.05, 1.2), True),  # they overlap
        (row(0.9, 1.01), row(1.05, 1.2), False),  # no difference, and more
        (row(1.02, 1.03), row(1.05, 1.2), True),  # both more
        (row(0.90, 0.95), row(0.985, 0.99), True),
        (row(0.90, 0.95, 0.98), row(0.985, 0.99, 0.98), False),  # both less, but one meets the goal
        (row(0.90, 0.95, 0.98), row(0.97, 0.99, 0.98), True),  # the other does not know
    ],
)
def test_when_rows_agree(now: Conclusion, earlier: Conclusion, agrees: bool) -> None:
    assert Pair(now, earlier).agrees is agrees
    assert Pair(earlier, now).agrees is agrees


def test_what_a_goal_comes_to() -> None:
    assert [row(*ends, 0.98).reached for ends in ((0.99, 1.1), (0.9, 1.1), (0.9, 0.97))] == [
        "met",
        "open",
        "missed",
    ]
    assert [row(*ends, 1.0, at_most=True).reached for ends in ((0.8, 1.0), (0.9, 1.1), (1.1, 1.2))] == [
        "met",
        "open",
        "missed",
    ]
    assert row(1, 2).reached is None


@given(st.integers(1, 2000))
def test_the_limit_of_chance_is_above_what_is_expected_and_not_far(rows: int) -> None:
    limit = at_most(rows)
    assert limit >= math.floor(BY_CHANCE * rows)
    assert limit <= BY_CHANCE * rows + 2 * math.sqrt(BY_CHANCE * rows) + 1


@pytest.mark.parametrize("name", ["traffic", "observer", "hooks", "attach", "own", "precision"])
def test_results_in_the_tree_have_conclusions_and_agree_with_themselves(name: str) -> None:
    path = Path(__file__).resolve().parents[2] / "results" / "bench" / f"{name}.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    found = agreement(name, result, result)
    assert found is not None and found.pairs and not found.disagreeing
    rows = [one.row for one in conclusions(name, result)]
    assert len(set(rows)) == len(rows)


def test_the_document_compares_and_says_how_long_it_took(tmp_path: Path) -> None:
    (tmp_path / "earlier").mkdir()
    for place, truth in ((tmp_path, 1.5), (tmp_path / "earlier", 0.5)):
        (place / "attach.json").write_text(json.dumps(run([truth], 1)), encoding="utf-8")
    text = document(tmp_path, {"attach": 100, "own": 10})
    assert "| attach | 100 s | 90 s |" in text
    assert "1 of 1 rows disagree" in text and "2026-11-20T20:00, 0123abc" in text
    (tmp_path / "earlier" / "attach.json").unlink()
    assert "twice" not in document(tmp_path, {"attach": 100})

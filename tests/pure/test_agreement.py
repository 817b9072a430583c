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
from conclusions import Conclusion, comparison, conclusions
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
    text = "\n".join(comparing.lines([found]))
    assert "64 B, 1 connection, one_copy against iperf3, gbps" in text


def test_two_sizes_of_one_effect_agree() -> None:
    assert not both([0.5] * 5, [0.7] * 5).disagreeing


def test_runs_of_two_machines_are_not_compared() -> None:
    other = run([1.0], 1) | {"machine": MACHINE | {"kernel": "6.19"}}
    assert agreement("traffic", run([1.0], 1), other) is None


def test_rows_that_one_run_has_alone_are_named() -> None:
    assert both([1.0, 1.0], [1.0]).lonely == {
        "128 B, 2 connections, one_copy against iperf3, gbps": "this run"
    }


@pytest.mark.parametrize(
    ("now", "earlier", "said"),
    [
        ("0123abc", "0123abc", None),
        ("0123abc", "4567def", "unlike commits"),
        ("0123abc and changes", "0123abc and changes", "changes that no commit has"),
        ("0123abc", None, "not known"),
    ],
)
def test_two_runs_of_unlike_code_are_flagged(now: str, earlier: str | None, said: str | None) -> None:
    found = agreement("traffic", run([1.0], 1) | {"git": now}, run([1.0], 2) | {"git": earlier})
    assert found is not None
    text = "\n".join(comparing.lines([found]))
    assert ("NOT TWO RUNS OF ONE CODE: traffic" in text) is (said is not None)
    assert said is None or f" {said}" in text


def attached(seen: float, stated: float) -> dict[str, Any]:
    """A run of attach, of which both ratios are known to 0.01."""
    made = run([seen, stated], 1)
    for one, name, truth in zip(
        made["comparisons"], ("attached", "its_attached"), (seen, stated), strict=True
    ):
        one |= {"ours": name, "ratio": truth, "low": truth - 0.01, "high": truth + 0.01}
    return made


def test_the_verdict_on_what_the_records_state_is_compared() -> None:
    as_stated, more = attached(0.96, 0.965), attached(0.94, 0.97)
    found, same = agreement("attach", as_stated, more), agreement("attach", more, more)
    assert found is not None and same is not None
    assert "attach: THE VERDICTS DIFFER" in "\n".join(comparing.lines([found]))
    assert "DIFFER" not in "\n".join(comparing.lines([same]))


def off(ours: str, low: float, high: float) -> dict[str, Any]:
    ends = {"ratio": (low + high) / 2, "low": low, "high": high}
    about = {"ours": ours, "peer": "off", "quantity": "gbps", "factors": {"size_bytes": 64}}
    return about | ends | {"ours_median": 1.0, "peer_median": 1.0, "pairs": 10}


@pytest.mark.parametrize(
    ("ours", "reached"),
    [
        ((0.985, 0.995), "met"),  # 0.5 to 1.5 % of at least 8 %
        ((0.985, 1.02), "met"),  # perhaps none at all
        ((0.960, 0.995), "open"),
        ((0.930, 0.950), "missed"),
    ],
)
def test_three_times_less_loss_than_the_best_peer_is_a_goal(ours: tuple[float, float], reached: str) -> None:
    made = [off("ours", *ours), off("perf_record", 0.90, 0.92), off("bpftrace_profile", 0.80, 0.82)]
    found = conclusions("observer", run([], 1) | {"comparisons": made})
    assert [one.reached for one in found if "best peer" in one.row] == [reached]
    # a peer that was not measured in one of the runs leaves the row what it is
    fewer = conclusions("observer", run([], 1) | {"comparisons": made[:2]})
    assert [one.row for one in fewer if "best peer" in one.row] == [
        "64 B, loss of ours over that of the best peer"
    ]


def test_a_peer_that_may_lose_nothing_leaves_the_goal_open() -> None:
    made = [off("ours", 0.98, 0.99), off("perf_record", 0.90, 1.01)]
    found = conclusions("observer", run([], 1) | {"comparisons": made})
    assert [one.reached for one in found if "best peer" in one.row] == ["open"]


def test_missed_goals_are_named_and_why_a_peer_is_missing(tmp_path: Path) -> None:
    (tmp_path / "earlier").mkdir()
    now = run([], 1) | {"comparisons": [off("ours", 0.90, 0.91), off("perf_record", 0.8, 0.9)]}
    earlier = run([], 1) | {"comparisons": [off("ours", 0.90, 0.96)]}
    earlier["raw"] = [{"size_bytes": 64, "failed": {"perf_record": "does not end"}}]
    for place, result in ((tmp_path, now), (tmp_path / "earlier", earlier)):
        (place / "observer.json").write_text(json.dumps(result), encoding="utf-8")
    text = document(tmp_path, {"observer": 100})
    assert "- observer: 64 B, ours against off, gbps: 0.905 (0.900 to 0.910): less, goal missed" in text
    assert "- earlier run, 64 B: perf_record could not be measured: does not end" in text
    assert "- observer: 64 B, perf_record against off, gbps: in this run only" in text
    assert "| 0.95 | missed | open |" in text


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


def test_a_watched_program_may_lose_this_much_and_no_more() -> None:
    """3 % of goodput or requests, 1 % at 64 KiB, 5 % of the time that a hundredth of the requests exceed."""

    def made(quantity: str, size_bytes: int, ratio: float) -> dict[str, Any]:
        about = {"ours": "it watched", "peer": "it", "quantity": quantity, "pairs": 10}
        return about | {
            "factors": {"size_bytes": size_bytes},
            "ratio": ratio,
            "low": ratio - 0.005,
            "high": ratio + 0.005,
        }

    def reached(*row: Any) -> str | None:
        return comparison("watch", made(*row)).reached

    assert [reached("gbps", 64, ratio) for ratio in (0.96, 0.97, 0.98)] == ["missed", "open", "met"]
    assert [reached("gbps", 65536, ratio) for ratio in (0.98, 0.99, 0.998)] == ["missed", "open", "met"]
    assert [reached("requests", 1, ratio) for ratio in (0.96, 0.98)] == ["missed", "met"]
    # A time is to be small: less is fine.
    assert [reached("p99_us", 1, ratio) for ratio in (0.5, 1.04, 1.06)] == ["met", "met", "missed"]

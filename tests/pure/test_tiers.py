"""The exact tier beside the sampled one: shares, intervals, and when there is nothing to compare."""

from typing import Any

import pytest
from builders import raw_record, without_task_clock
from builders.exact import with_functions
from copyscope.errors import UsageError
from copyscope.ledger.compare_tiers import compare_tiers, coverage, inside_calls, seen_beside, why_not
from copyscope.ledger.derive import derive
from copyscope.plan.arguments import parser
from copyscope.plan.arms import BESIDE, all_at_once, arm_probes, bytes_apart
from copyscope.plan.options import check_usage
from copyscope.plan.schedule import ARM_WEIGHTS
from copyscope.record.check import typed
from copyscope.render.tiers import tier_lines
from copyscope.taxonomy.samples import beside, of_ledger

ARMS = ("unprobed", "ledger", "functions")


def as_sampled(raw: dict[str, Any]) -> dict[str, Any]:
    """The cells of the function hooks such that their shares are those of the samples."""
    cells, cell = [], raw["functions"]["cells"][0]
    for row in raw["samples"]:
        if row["context"] != "user" and row["side"] != "other":
            ns = 10_000 * row["samples"]
            key = {key: row[key] for key in ("side", "context", "category")}
            cells.append({**cell, **key, "self_ns": ns, "timed_calls": 1, "bytes": 0})
    raw["functions"]["cells"] = cells
    return raw


def test_equal_shares_agree() -> None:
    full = derive(as_sampled(with_functions(raw_record("zero_copy", arms=ARMS))))
    rows = compare_tiers(typed(full))
    assert rows and all(row["inside"] for row in rows)
    assert all(row["ratio"] == pytest.approx(1) for row in rows if row["sampled_share"])
    for side in ("sender", "receiver"):
        of_side = [row for row in rows if row["side"] == side]
        assert sum(row["exact_share"] for row in of_side) == pytest.approx(1)
        assert sum(row["sampled_share"] for row in of_side) == pytest.approx(1)


def test_a_share_outside_of_the_interval_is_found() -> None:
    raw = as_sampled(with_functions(raw_record("one_copy", arms=ARMS)))
    next(cell for cell in raw["functions"]["cells"] if cell["category"] == "copy_in")["self_ns"] *= 5
    full = derive(raw)
    row = next(row for row in compare_tiers(typed(full)) if row["name"] == "copy_in")
    assert not row["inside"] and row["ratio"] > 1.5
    text = "\n".join(line.plain for line in tier_lines(full, 100))
    assert "copy_in" in text and " no" in text


def with_beside(raw: dict[str, Any], **times: int) -> dict[str, Any]:
    """As many samples beside the hooks as without them; of some categories so many times as many."""
    raw["samples_beside"] = [
        {**row, "samples": row["samples"] * times.get(row["category"], 1)} for row in raw["samples"]
    ]
    return raw


def test_the_samples_of_the_same_work_are_the_judge() -> None:
    raw = as_sampled(with_functions(raw_record("one_copy", arms=ARMS)))
    next(cell for cell in raw["functions"]["cells"] if cell["category"] == "copy_in")["self_ns"] *= 5
    full = derive(with_beside(raw, copy_in=5))
    rows = {(row["side"], row["name"]): row for row in compare_tiers(typed(full))}
    row = rows["sender", "copy_in"]
    # Where functions are hooked the copy has that share; in the ledger it had less.
    assert row["inside"] and row["beside_share"] == pytest.approx(row["exact_share"], rel=0.02)
    assert row["sampled_high"] < row["beside_low"] < row["exact_share"] < row["beside_high"]
    assert row["ratio"] == pytest.approx(row["exact_share"] / row["sampled_share"])
    text = " ".join("\n".join(line.plain for line in tier_lines(full, 100)).split())
    assert "samples of the same segments" in text
    for row in compare_tiers(typed(with_beside(raw))):
        assert row["inside"] == (row["side"] != "sender" or row["exact_share"] == row["sampled_share"] == 0)


def test_what_the_timer_saw_is_over_the_exact_time_of_the_same_segments() -> None:
    raw = with_beside(as_sampled(with_functions(raw_record("zero_copy", arms=ARMS))))
    full = derive(raw)
    rows = {row["side"]: row for row in seen_beside(typed(full))}
    for side in ("sender", "receiver"):
        taken = [r for r in raw["samples_beside"] if r["side"] == side and r["context"] != "user"]
        assert rows[side]["sampled_ns"] == round(sum(r["weight"] for r in taken))
        # Of as_sampled() each is worth 10,000 ns.
        assert rows[side]["exact_ns"] == 10_000 * sum(r["samples"] for r in taken)
    raw["samples_beside"] = []
    assert seen_beside(typed(raw)) == []


def test_samples_that_fall_into_kprobes_are_lost_and_judge_nothing() -> None:
    raw = with_beside(as_sampled(with_functions(raw_record("one_copy", arms=ARMS))))
    hook = next(hook for hook in raw["hooks"] if hook["instrument"] == "functions")
    assert all(row["beside_share"] is not None for row in compare_tiers(typed(raw)))
    hook["how"] = "kprobe"
    full = derive(raw)
    assert all(row["beside_share"] is None for row in compare_tiers(typed(full)))
    text = " ".join("\n".join(line.plain for line in tier_lines(full, 100)).split())
    assert "samples of the ledger segments (none were taken beside the hooks)" in text


def test_what_was_sampled_beside_hooks_is_in_no_stack_of_the_ledger() -> None:
    taken = [
        {"side": "sender", "event": "cpu-clock", "frames": ["tcp_sendmsg"], "samples": 3, "weight": 30},
        {"side": "sender", "event": "cpu-clock", "frames": [], "samples": 4, "weight": 40, "beside": True},
    ]
    assert [row["samples"] for row in of_ledger(taken)] == [3]
    assert [row["samples"] for row in beside(taken)] == [4]


def test_without_function_hooks_it_says_why() -> None:
    full = derive(raw_record("one_copy"))
    assert compare_tiers(typed(full)) == [] and "no function was hooked" in str(why_not(typed(full)))
    text = "\n".join(line.plain for line in tier_lines(full, 100))
    assert "no function was hooked" in text


def test_without_samples_it_says_why() -> None:
    raw = with_functions(raw_record("one_copy", arms=ARMS))
    raw["samples"] = []
    full = derive(raw)
    assert compare_tiers(typed(full)) == [] and why_not(typed(full))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--compare-tiers"], ("counters", "calls", "sampler", "functions")),
        (["--compare-tiers", "--instruments", "sampler,functions"], ("sampler", "functions")),
        (["--instruments", "functions", "--count", "cpu-clock"], ("functions",)),
    ],
)
def test_the_instruments_that_it_needs(options: list[str], expected: tuple[str, ...]) -> None:
    assert check_usage(parser().parse_args(options)) == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--compare-tiers", "--instruments", "sampler"], "needs sampler and functions"),
        (["--count", "cycles", "--instruments", "sampler"], "no function is hooked"),
        (["--count", "teapots", "--instruments", "functions"], "teapots"),
    ],
)
def test_what_cannot_work_is_wrong_usage(options: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_usage(parser().parse_args(options))


@pytest.mark.parametrize("apart", [False, True], ids=["softirq in the clock", "softirq not in the clock"])
def test_coverage_is_the_time_inside_the_roots_over_the_time_in_the_kernel(apart: bool) -> None:
    raw = as_sampled(with_functions(raw_record("one_copy", arms=ARMS)))
    if apart:  # CONFIG_IRQ_TIME_ACCOUNTING, and no perf stat
        without_task_clock(raw)["machine"]["irq_time_accounting"] = True
    full = derive(raw)
    for row in coverage(typed(full)):
        assert row["low"] < row["ratio"] < row["high"]
        users = [s for s in raw["samples"] if s["side"] == row["side"] and s["context"] == "user"]
        everything = sum(
            s["samples"]
            for s in raw["samples"]
            if s["side"] == row["side"] and not (apart and s["context"] == "softirq")
        )
        share = 1 - sum(s["samples"] for s in users) / everything
        segments = [s for s in raw["run"]["segments"] if s["arm"] == "functions"]
        clock_ns = sum(s[row["side"]]["process_cpu_ns"] for s in segments)
        assert row["kernel_ns"] == pytest.approx(clock_ns * share, rel=1e-6)
        assert row["ratio"] == pytest.approx(row["inside_ns"] / (clock_ns * share))
    assert {row["side"] for row in coverage(typed(full))} == {"sender", "receiver"}


def test_what_is_inside_of_the_calls_is_compared_with_the_calls_of_the_same_segments() -> None:
    together = raw_record("one_copy", arms=("unprobed", "ledger", "calls+functions"))
    full = derive(with_functions(together))
    rows = {row["side"]: row for row in inside_calls(typed(full))}
    assert set(rows) == {"sender", "receiver"}
    for root in full["functions"]["roots"][:2]:
        row = rows[root["side"]]
        calls = [call for call in full["calls"] if call["side"] == root["side"]]
        assert row["inside_ns"] == root["inclusive_ns"]
        assert row["calls_ns"] == sum(call["on_cpu_ns"] + call["softirq_ns"] for call in calls)
        assert row["ratio"] == pytest.approx(root["inclusive_ns"] / row["calls_ns"])
        assert row["rest_ns_per_call"] * row["calls"] == pytest.approx(row["calls_ns"] - row["inside_ns"])
    text = "\n".join(line.plain for line in tier_lines(full, 100))
    assert "by the clock of system calls in the same" in " ".join(text.split())
    # What hooked functions cost is not what timing the calls costs.
    arms = full["overhead"]["arms"]
    assert "--compare-tiers" in arms["calls"]["reason"]
    # What both cost is known, under a name that says so.
    assert arms["calls+functions"]["ratio"] is not None and "functions" not in arms


@pytest.mark.parametrize(
    "arms", [("unprobed", "ledger", "calls", "functions"), ("unprobed", "ledger", "functions")]
)
def test_calls_of_other_segments_are_not_compared(arms: tuple[str, ...]) -> None:
    assert inside_calls(typed(with_functions(raw_record("one_copy", arms=arms)))) == []


def test_calls_and_functions_share_a_segment_only_where_tiers_are_compared() -> None:
    every = ("counters", "calls", "sampler", "functions")
    assert set(arm_probes(every)) == {"unprobed", "ledger", "calls", "functions"}
    together = arm_probes(every, compared=True)
    assert together["calls+functions"] == ("calls", "functions", BESIDE)
    assert set(together) == {"unprobed", "ledger", "calls+functions"} <= set(ARM_WEIGHTS)
    assert arm_probes(("sampler", "functions"), compared=True)["functions"] == ("functions", BESIDE)
    # In one segment for all there is one sampler, and its samples are the ledger's.
    (once,) = all_at_once(together).values()
    assert "sampler" in once and BESIDE not in once
    assert set(arm_probes(("sampler", "functions"), compared=True)) == {"unprobed", "ledger", "functions"}


def test_bytes_have_segments_of_their_own_but_in_a_run_of_one_segment() -> None:
    arms = arm_probes(("counters", "calls", "sampler"))
    apart = bytes_apart(arms)
    assert (apart["ledger"], apart["bytes"]) == (("sampler",), ("bytes",))
    assert set(apart) == {"unprobed", "ledger", "calls", "bytes"} <= set(ARM_WEIGHTS)
    assert bytes_apart(arm_probes(("counters",)))["ledger"] == ()
    assert "bytes" not in bytes_apart(arm_probes(("calls",)))
    assert all_at_once(arms) == {"ledger+calls": ("bytes", "sampler", "calls")}

# SPDX-License-Identifier: GPL-2.0-only
"""Answers of a report: sentences made from numbers. A difference is named only if its interval shows it."""

import copy
from typing import Any

import pytest
from builders.documents import typed_runs
from builders.sweep import sweep
from copyscope.base.stats import Estimate, Missing
from copyscope.judge import estimates, metrics
from copyscope.judge.crossover import crossovers_of
from copyscope.report import questions
from copyscope.report import study_table as table
from copyscope.report.questions import QuestionAnswer
from copyscope.report.study import saved_tables
from copyscope.report.study_table import Waterfall
from copyscope.report.wording import number, spell_ratio

Record = dict[str, Any]


def remove_time(row: Record) -> None:
    """Remove the sampled CPU time of a row."""
    row |= {"ns_per_kib": None, "reasons": row["reasons"] | {"ns_per_kib": "not sampled"}}


def answer_all(records: list[Record]) -> list[QuestionAnswer]:
    return questions.answers(table.fill(typed_runs(records)), crossovers_of(typed_runs(records)))


@pytest.fixture(scope="module")
def without_pmu() -> list[Record]:
    return sweep(sizes=(64, 4096, 65_536), threads=(1, 4), repeats=3)


def test_all_six_questions_are_answered_with_facts(without_pmu: list[Record]) -> None:
    answers = answer_all(without_pmu)
    assert len(answers) == 6
    for answer in answers:
        assert answer.text.endswith((".", "below."))
        assert answer.facts


def test_the_answer_on_zero_copy_names_savings_and_added_work(without_pmu: list[Record]) -> None:
    text = answer_all(without_pmu)[0].text
    assert "it saves" in text
    assert "(copy into the kernel)" in text.split("it adds")[0]
    assert "(late copy)" in text.split("it adds")[1]
    assert (
        "100 % of zero_copy's payload was copied after all: the receiver is on the same machine (veth)"
        in text
    )


def test_over_xdp_the_answer_names_the_silent_copy() -> None:
    text = answer_all(sweep(sizes=(65_536,), threads=(1,), repeats=3, kind="veth-xdp"))[0].text
    assert "copied after all: native XDP" in text


def test_without_a_pmu_the_cache_question_is_not_answered(without_pmu: list[Record]) -> None:
    answer = answer_all(without_pmu)[1]
    assert answer.text.startswith("Not answered on this machine: ")
    assert "no PMU" in answer.text
    misses = [fact.value for fact in answer.facts if "misses" in fact.quantity]
    assert len(misses) == 8
    assert all(isinstance(value, Missing) for value in misses)


def test_with_a_pmu_the_cache_question_is_answered_from_counters() -> None:
    records = sweep(impls=("two_copy", "one_copy"), sizes=(65_536,), threads=(1,), repeats=3, pmu=True)
    for record in records:
        for side in ("sender", "receiver"):
            # one copy less: half of the last-level misses, the same in the first level
            llc = 10.0 if record["workload"]["impl"] == "one_copy" else 20.0
            kib = (
                sum(
                    s["sides"]["receiver"]["bytes"]
                    for s in record["run"]["segments"]
                    if s["phase"] == "ledger"
                )
                / 1024
            )
            record["counters"][side]["LLC-load-misses"]["value"] = llc * kib
            record["counters"][side]["L1-dcache-load-misses"]["value"] = 50.0 * kib
    text = answer_all(records)[1].text
    assert text.startswith("The last level (LLC) of the sender, 50 % fewer misses per KiB at 64 KiB")
    assert "first level (L1D) of the sender: no difference found" in text


def test_a_single_number_of_threads_is_reported_as_too_few() -> None:
    assert "only one number of threads" in answer_all(sweep(threads=(1,), repeats=2))[2].text


def test_a_single_strategy_answers_no_question() -> None:
    answers = answer_all(sweep(impls=("one_copy",), sizes=(4096,), threads=(1,), repeats=2))
    unanswered = ("Not answered", "No strategy with fewer copies")
    assert [answer.text.startswith(unanswered) for answer in answers] == [True] * 6


def test_fewer_copies_that_cost_more_are_reported_as_unexpected(without_pmu: list[Record]) -> None:
    text = answer_all(without_pmu)[5].text
    assert text.startswith("zero_copy makes fewer copies into the socket than two_copy")


def test_the_steps_of_a_waterfall_add_up_to_the_difference(without_pmu: list[Record]) -> None:
    waterfalls = table.waterfalls(table.fill(typed_runs(without_pmu)))
    assert len(waterfalls) == 6
    for waterfall in waterfalls:
        assert isinstance(waterfall, Waterfall)
        moved = sum(step.change.value for step in waterfall.steps)
        assert waterfall.start + moved == pytest.approx(waterfall.end)
        change = {step.name: step.change for step in waterfall.steps}
        assert change["copy into the kernel"].value < 0 < change["late copy"].value
        for step in waterfall.steps:
            if step.change.low is not None and step.change.high is not None:
                assert step.change.low <= step.change.value <= step.change.high


def test_two_ways_to_receive_have_a_waterfall_too(without_pmu: list[Record]) -> None:
    """From read to map: the copy to the receiver disappears, and the cost of mapping pages appears."""
    one_copy_runs = [
        r for r in without_pmu if r["run"]["factors"] == {"impl": "one_copy", "size": 65_536, "threads": 1}
    ]
    records = []
    for receiver in ("read", "map"):
        for run in copy.deepcopy(one_copy_runs):
            run["run"]["factors"]["receiver"] = run["workload"]["receiver"] = receiver
            run["run"]["id"] += receiver
            for row in run["ledger"]:
                if row["account"] == "copy_out" and receiver == "map":
                    row["account"] = "mapped"
            records.append(run)
    (waterfall,) = table.waterfalls(table.fill(typed_runs(records)))
    assert isinstance(waterfall, Waterfall)
    assert waterfall.names == ("read", "map") and waterfall.start == pytest.approx(waterfall.end)
    change = {step.name: step.change.value for step in waterfall.steps}
    assert (
        change["pages mapped"] == pytest.approx(-change["copy to the receiver"])
        and change["pages mapped"] > 0
    )
    (shown,) = saved_tables([waterfall])
    assert (shown.columns[1], shown.columns[-1]) == ("read", "map")


def test_a_side_without_samples_keeps_its_cost(without_pmu: list[Record]) -> None:
    """A short run may lack samples of the receiver: its CPU time is then divided as in the other runs."""
    runs = [r for r in without_pmu if r["run"]["factors"] == {"impl": "one_copy", "size": 4096, "threads": 1}]
    without_samples = copy.deepcopy(runs)
    for row in [*without_samples[0]["ledger"], *without_samples[0]["stages"]]:
        if row["side"] == "receiver":
            remove_time(row)
    for records in map(typed_runs, (runs, without_samples)):
        for run, parts in zip(records, estimates.parts_of(records), strict=True):
            total = metrics.read(run, "system_cpu_ns_per_kib")
            assert sum(parts.values()) == pytest.approx(total)
            assert parts["copy_out"] > 0
    for record in without_samples:
        for row in [*record["ledger"], *record["stages"]]:
            remove_time(row)
    (parts, *_) = estimates.parts_of(typed_runs(without_samples))
    assert list(parts) == ["unattributed"]


def test_missing_samples_of_a_strategy_are_no_saving(without_pmu: list[Record]) -> None:
    without_samples = copy.deepcopy([r for r in without_pmu if r["workload"]["size_bytes"] == 4096])
    for record in without_samples:
        for row in [*record["ledger"], *record["stages"]]:
            if record["workload"]["impl"] == "zero_copy" and row["side"] == "receiver":
                remove_time(row)
    waterfall = table.waterfalls(table.fill(typed_runs(without_samples)))[0]
    assert isinstance(waterfall, Waterfall)
    change = {step.name: step.change.value for step in waterfall.steps}
    assert "copy to the receiver" not in change
    assert change["not explained"] > 0
    assert waterfall.start + sum(change.values()) == pytest.approx(waterfall.end)


def test_a_pair_without_a_shared_repeat_has_no_waterfall(without_pmu: list[Record]) -> None:
    chosen = [r for r in without_pmu if r["workload"]["impl"] == "one_copy" or r["run"]["repeat"] > 0]
    kept = [r for r in chosen if r["workload"]["impl"] != "one_copy" or r["run"]["repeat"] == 0]
    assert all(isinstance(waterfall, Missing) for waterfall in table.waterfalls(table.fill(typed_runs(kept))))


def test_a_point_without_a_valid_run_keeps_its_row(without_pmu: list[Record]) -> None:
    spoiled = [r | {"verdict": r["verdict"] | {"valid": False, "reasons": ["lost"]}} for r in without_pmu]
    rows = table.fill(typed_runs(spoiled))
    assert len(rows) == 24
    assert all(row.valid == 0 and row.invalid == 3 for row in rows)
    assert all(value == Missing("no valid run of this point: lost") for value in rows[0].values.values())


def test_numbers_and_ratios_are_rounded_in_sentences() -> None:
    texts = {0: "0", 0.01234: "0.0123", 1.5: "1.5", 99.96: "100", 1234567.0: "1,230,000", -3.14159: "-3.14"}
    assert {value: number(value) for value in texts} == texts
    assert spell_ratio(Estimate(1.0, 0.9, 1.1, 0.95, 3)).startswith("no difference found")
    assert spell_ratio(Estimate(1.5, 1.4, 1.6, 0.95, 3)) == "1.5 times, 95 % interval 1.4 to 1.6"
    assert spell_ratio(Missing("no PMU")) == "n/a: no PMU"

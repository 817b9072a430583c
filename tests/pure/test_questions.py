"""The answers of a report: sentences from numbers, and no difference that its interval does not show."""

import copy
from typing import Any

import pytest
from builders.sweep import sweep
from copyscope.judge import estimates, metrics
from copyscope.judge.crossover import crossovers_of
from copyscope.judge.metrics import typed_runs
from copyscope.report.tables import saved_tables
from copyscope.stats import Estimate, Missing
from copyscope.study import cost_waterfall, questions, table
from copyscope.study.cost_waterfall import Waterfall
from copyscope.study.questions import Answer
from copyscope.study.wording import number, say_ratio

Record = dict[str, Any]


def forget(row: Record) -> None:
    """Its time was not sampled."""
    row |= {"ns_per_kib": None, "reasons": row["reasons"] | {"ns_per_kib": "not sampled"}}


def answer_all(records: list[Record]) -> list[Answer]:
    return questions.answers(table.fill(typed_runs(records)), crossovers_of(typed_runs(records)))


@pytest.fixture(scope="module")
def without_pmu() -> list[Record]:
    return sweep(sizes=(64, 4096, 65_536), threads=(1, 4), repeats=3)


def test_all_six_are_answered_with_what_they_rest_on(without_pmu: list[Record]) -> None:
    found = answer_all(without_pmu)
    assert len(found) == 6
    for answer in found:
        assert answer.text.endswith((".", "below."))
        assert answer.facts


def test_zero_copy_is_told_what_it_saves_and_pays(without_pmu: list[Record]) -> None:
    text = answer_all(without_pmu)[0].text
    assert "it saves" in text
    assert "(copy into the kernel)" in text.split("it pays")[0]
    assert "(late copy)" in text.split("it pays")[1]
    assert "100 % of its payload was copied after all: local delivery over veth" in text


def test_over_xdp_the_copy_is_silent_and_the_answer_says_so() -> None:
    text = answer_all(sweep(sizes=(65_536,), threads=(1,), repeats=3, kind="veth-xdp"))[0].text
    assert "copied after all: native XDP" in text


def test_without_a_pmu_the_cache_question_is_not_answered(without_pmu: list[Record]) -> None:
    answer = answer_all(without_pmu)[1]
    assert answer.text.startswith("Not answered on this machine: ")
    assert "no PMU" in answer.text
    misses = [fact.value for fact in answer.facts if "misses" in fact.quantity]
    assert len(misses) == 8
    assert all(isinstance(value, Missing) for value in misses)


def test_with_a_pmu_it_is_answered_from_the_counters() -> None:
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


def test_one_thread_count_is_said_to_be_too_few() -> None:
    assert "one thread count only" in answer_all(sweep(threads=(1,), repeats=2))[2].text


def test_a_strategy_alone_answers_nothing_and_invents_nothing() -> None:
    found = answer_all(sweep(impls=("one_copy",), sizes=(4096,), threads=(1,), repeats=2))
    unanswered = ("Not answered", "No strategy with fewer copies")
    assert [answer.text.startswith(unanswered) for answer in found] == [True] * 6


def test_the_unexpected_is_where_fewer_copies_cost_more(without_pmu: list[Record]) -> None:
    text = answer_all(without_pmu)[5].text
    assert text.startswith("zero_copy makes fewer copies into the socket than two_copy")


def test_the_steps_of_a_waterfall_lead_from_one_cost_to_the_other(without_pmu: list[Record]) -> None:
    found = cost_waterfall.waterfalls(table.fill(typed_runs(without_pmu)))
    assert len(found) == 6
    for one in found:
        assert isinstance(one, Waterfall)
        moved = sum(step.change.value for step in one.steps)
        assert one.start + moved == pytest.approx(one.end)
        change = {step.name: step.change for step in one.steps}
        assert change["copy into the kernel"].value < 0 < change["late copy"].value
        for step in one.steps:
            if step.change.low is not None and step.change.high is not None:
                assert step.change.low <= step.change.value <= step.change.high


def test_what_receiving_without_a_copy_saves_has_steps_too(without_pmu: list[Record]) -> None:
    """From read to map: the copy out goes, what mapping costs comes."""
    ours = [
        r for r in without_pmu if r["run"]["factors"] == {"impl": "one_copy", "size": 65_536, "threads": 1}
    ]
    records = []
    for receiver in ("read", "map"):
        for run in copy.deepcopy(ours):
            run["run"]["factors"]["receiver"] = run["workload"]["receiver"] = receiver
            run["run"]["id"] += receiver
            for row in run["ledger"]:
                if row["account"] == "copy_out" and receiver == "map":
                    row["account"] = "mapped"
            records.append(run)
    (found,) = cost_waterfall.waterfalls(table.fill(typed_runs(records)))
    assert isinstance(found, Waterfall)
    assert found.names == ("read", "map") and found.start == pytest.approx(found.end)
    change = {step.name: step.change.value for step in found.steps}
    assert (
        change["pages mapped"] == pytest.approx(-change["copy to the receiver"])
        and change["pages mapped"] > 0
    )
    (shown,) = saved_tables([found])
    assert (shown.columns[1], shown.columns[-1]) == ("read", "map")


def test_a_side_that_was_not_sampled_still_costs_what_it_costs(without_pmu: list[Record]) -> None:
    """A short run may miss a side: its time is then divided as in the other runs, and never lost."""
    runs = [r for r in without_pmu if r["run"]["factors"] == {"impl": "one_copy", "size": 4096, "threads": 1}]
    blind = copy.deepcopy(runs)
    for row in [*blind[0]["ledger"], *blind[0]["stages"]]:
        if row["side"] == "receiver":
            forget(row)
    for records in map(typed_runs, (runs, blind)):
        for run, parts in zip(records, estimates.parts_of(records), strict=True):
            whole = metrics.read(run, "system_cpu_ns_per_kib")
            assert sum(parts.values()) == pytest.approx(whole)
            assert parts["copy_out"] > 0
    for record in blind:
        for row in [*record["ledger"], *record["stages"]]:
            forget(row)
    (parts, *_) = estimates.parts_of(typed_runs(blind))
    assert list(parts) == ["unattributed"]


def test_a_side_that_one_of_two_did_not_sample_is_no_saving(without_pmu: list[Record]) -> None:
    blind = copy.deepcopy([r for r in without_pmu if r["workload"]["size_bytes"] == 4096])
    for record in blind:
        for row in [*record["ledger"], *record["stages"]]:
            if record["workload"]["impl"] == "zero_copy" and row["side"] == "receiver":
                forget(row)
    found = cost_waterfall.waterfalls(table.fill(typed_runs(blind)))[0]
    assert isinstance(found, Waterfall)
    change = {step.name: step.change.value for step in found.steps}
    assert "copy to the receiver" not in change
    assert change["not explained"] > 0
    assert found.start + sum(change.values()) == pytest.approx(found.end)


def test_a_pair_without_a_shared_repeat_has_no_waterfall(without_pmu: list[Record]) -> None:
    chosen = [r for r in without_pmu if r["workload"]["impl"] == "one_copy" or r["run"]["repeat"] > 0]
    kept = [r for r in chosen if r["workload"]["impl"] != "one_copy" or r["run"]["repeat"] == 0]
    assert all(isinstance(one, Missing) for one in cost_waterfall.waterfalls(table.fill(typed_runs(kept))))


def test_a_point_without_a_valid_run_keeps_its_place(without_pmu: list[Record]) -> None:
    spoiled = [r | {"verdict": r["verdict"] | {"valid": False, "reasons": ["lost"]}} for r in without_pmu]
    rows = table.fill(typed_runs(spoiled))
    assert len(rows) == 24
    assert all(row.valid == 0 and row.invalid == 3 for row in rows)
    assert all(value == Missing("no valid run of this point: lost") for value in rows[0].values.values())


def test_words_for_numbers() -> None:
    said = {0: "0", 0.01234: "0.0123", 1.5: "1.5", 99.96: "100", 1234567.0: "1,230,000", -3.14159: "-3.14"}
    assert {value: number(value) for value in said} == said
    assert say_ratio(Estimate(1.0, 0.9, 1.1, 0.95, 3)).startswith("no difference found")
    assert say_ratio(Estimate(1.5, 1.4, 1.6, 0.95, 3)) == "1.5 times, 95 % interval 1.4 to 1.6"
    assert say_ratio(Missing("no PMU")) == "n/a: no PMU"

"""What the kernel matrix says of the two tiers: numbers of its surveys, and the tables that judge them."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from builders import raw_record
from builders.exact import with_functions
from copyscope import paths
from copyscope.ledger.compare_tiers import REST, compare_tiers, inside_calls
from copyscope.ledger.derive import derive
from copyscope.record.check import typed

ARMS = ("unprobed", "ledger", "calls+functions")


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(paths.ROOT / "tests" / "kernels"))


def module(name: str) -> Any:
    return importlib.import_module(name)


def kept(**changes: Any) -> dict[str, Any]:
    """A survey as it is kept: half of the sender's time is the deferred copy, and the sampler says so too."""
    row = {"side": "sender", "context": "softirq", "name": "deferred", "exact_share": 0.5}
    row |= {"sampled_share": 0.5, "sampled_low": 0.4, "sampled_high": 0.6, "inside": True}
    row |= {"beside_share": 0.52, "beside_low": 0.42, "beside_high": 0.62}
    call = {
        "side": "sender",
        "calls": 10,
        "calls_ns": 10_000_000,
        "inside_ns": 9_900_000,
        "roots_ns": 9_000_000,
    }
    return {
        "rows": [row],
        "exact_ns_per_kib": {"deferred": 300.0, REST: 600.0},
        "sampled_ns_per_kib": {"deferred": 200.0, "pin": 0.0, REST: 300.0},
        "exact_goodput_gbps": 0.5,
        "sampled_goodput_gbps": 1.0,
        "seen": {"sender": 1.01, "receiver": 0.95},
        "exact_stretch": 1.1,
        "sampled_stretch": 1.2,
        "calls": [call],
        **changes,
    }


def surveys(**by_kernel: dict[str, Any]) -> list[Any]:
    return [module("two_tiers").Survey(name, "zero_copy", found) for name, found in by_kernel.items()]


def test_what_is_kept_of_a_survey_is_what_its_record_says() -> None:
    record = derive(with_functions(raw_record("zero_copy", arms=ARMS)))
    found = module("figures").tiers_of(record)["zero_copy"]
    copies = [r for r in compare_tiers(typed(record)) if r["side"] != "other" and r["name"] != REST]
    assert [row["inside"] for row in found["rows"]] == [row["inside"] for row in copies]
    for row, copy in zip(found["rows"], copies, strict=True):
        assert row == pytest.approx({key: copy[key] for key in row}, abs=1e-6)
    for call, ratio in zip(found["calls"], inside_calls(typed(record)), strict=True):
        assert call["inside_ns"] / call["calls_ns"] == pytest.approx(ratio["ratio"])
        assert call["roots_ns"] <= call["inside_ns"]
    assert found["exact_stretch"] == 1.0
    deferred = [row for row in record["exact"] if row["ledger_name"] == "deferred"]
    assert found["exact_ns_per_kib"]["deferred"] == pytest.approx(
        sum(row["ns_per_kib"] for row in deferred), abs=0.1
    )
    stages = [row for row in record["stages"] if row["context"] != "user" and row["side"] != "other"]
    assert found["sampled_ns_per_kib"][REST] == pytest.approx(
        sum(row["ns_per_kib"] for row in stages), abs=0.1 * len(stages)
    )


def test_a_part_that_is_unknown_makes_the_sum_unknown() -> None:
    record = derive(with_functions(raw_record("zero_copy", arms=ARMS)))
    next(row for row in record["exact"] if row["ledger_name"] == "pin")["ns_per_kib"] = None
    found = module("figures").tiers_of(record)["zero_copy"]
    assert found["exact_ns_per_kib"]["pin"] is None
    assert surveys(one=found)[0].times("pin") == {}


def test_without_function_hooks_nothing_is_kept_and_nothing_judged() -> None:
    assert module("figures").tiers_of(derive(raw_record("one_copy"))) == {}
    assert module("two_tiers").judge_calls([]).startswith("Nothing to judge")


def test_rows_inside_are_counted_and_those_of_some_samples_apart() -> None:
    outside = {**kept()["rows"][0], "inside": False}
    tiny = {**outside, "name": "completion", "exact_share": 0.01, "beside_share": 0.02}
    (one, other) = surveys(one=kept(), other=kept(rows=[outside, tiny]))
    assert (one.inside(), other.inside(), other.inside(0.05)) == ((1, 1), (0, 2), (0, 1))
    rows = module("two_tiers").share_rows([one, other])
    assert {row[-1] for row in rows[1:]} == {"sender 1.01, receiver 0.95"}
    assert [row[:4] for row in rows[1:]] == [
        ["one", "zero_copy", "1 of 1", "1 of 1"],
        ["other", "zero_copy", "0 of 2", "0 of 1"],
        ["all", "", "1 of 3", "1 of 2"],
    ]


def test_ratios_are_of_a_side_and_their_range_is_of_all_kernels() -> None:
    row = kept()["rows"][0]
    taken_in = {**row, "side": "receiver", "exact_share": 0.1, "beside_share": 0.4}
    unseen = {**row, "name": "pin", "beside_share": 0.0}
    alone = {**row, "exact_share": 0.3} | dict.fromkeys(("beside_share", "beside_low", "beside_high"))
    found = surveys(one=kept(rows=[row, taken_in, unseen]), other=kept(rows=[alone]))
    rows = module("two_tiers").share_rows(found)
    at = rows[0].index("deferred")
    assert [row[at] for row in rows[1:]] == [
        "sender 0.96, receiver 0.25",
        "sender 0.60",
        "sender 0.60 to 0.96, receiver 0.25",
    ]
    assert {row[rows[0].index("pin")] for row in rows[1:]} == {"-"}


def test_times_per_kib_are_of_both_sides() -> None:
    slow = kept(exact_goodput_gbps=0.8, exact_stretch=6.4)
    rows = module("two_tiers").time_rows(surveys(one=kept(), other=slow))
    columns = [rows[0].index(name) for name in ("deferred", REST, "goodput", "longest", "pin")]
    assert [[row[column] for column in columns] for row in rows[1:]] == [
        ["1.50", "2.00", "0.50", "1.20", "-"],
        ["1.50", "2.00", "0.80", "6.40", "-"],
        ["1.50", "2.00", "0.50 to 0.80", "1.20 to 6.40", "-"],
    ]


@pytest.mark.parametrize(
    ("inside_ns", "said"),
    [
        (9_900_000, "within 3 % in 2 of 2; not within: none"),
        (9_600_000, "0.9600 to 0.9900; within 3 % in 1 of 2; not within: other zero_copy sender 0.9600"),
        (10_500_000, "0.9900 to 1.0500; within 3 % in 1 of 2; not within: other zero_copy sender 1.0500"),
    ],
)
def test_calls_that_the_roots_do_not_account_for_are_named(inside_ns: int, said: str) -> None:
    call = {**kept()["calls"][0], "inside_ns": inside_ns}
    found = surveys(one=kept(), other=kept(calls=[call]))
    assert said in module("two_tiers").judge_calls(found)
    rows = module("two_tiers").call_rows(found)
    assert rows[1][-4:] == ["1,000", "0.9000", "0.9900", "10.0"]

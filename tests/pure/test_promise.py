# SPDX-License-Identifier: GPL-2.0-only
"""`diff` prints what `advise` promised before a change beside what the change saved."""

from typing import Any

import pytest
from builders.advised import with_advice
from builders.documents import derive, typed_whole
from builders.watched import watched_record
from copyscope.judge.comparison import compare_groups
from copyscope.judge.difference import ComparisonOptions
from copyscope.show.compared import caveats

Record = dict[str, Any]


def promise_between(before: Record, after: Record) -> str | None:
    comparison = compare_groups([typed_whole(before)], [typed_whole(after)], ComparisonOptions())
    return next((text for text in caveats(comparison) if text.startswith("promised")), None)


def test_promised_and_measured_saving_are_printed_together() -> None:
    """Twice the bytes in the same CPU time: half the CPU time per byte."""
    before, after = (with_advice(watched_record(size=size)) for size in (8192, 16_384))
    (larger,) = (row for row in before["advice"]["remedies"] if row["name"] == "larger sends")
    larger["saves"] = {"least_share": 0.12, "most_share": 0.74, "likely_share": 0.6}
    assert promise_between(before, after) == (
        "promised for a larger buffer for `send(2)`: about 60 % (12 to 74) less CPU time per byte; "
        "measured: 50 % less"
    )


def test_remedy_in_use_after_the_change_is_the_promise() -> None:
    """Larger sends promise more, but the program uses sendfile now."""
    before = with_advice(watched_record(size=8192))
    after = with_advice(watched_record(size=8192, call="sendfile"))
    remedies = {row["name"]: row for row in before["advice"]["remedies"]}
    remedies["sendfile"] |= {"answer": "maybe", "how": "`sendfile(2)`"}
    remedies["sendfile"]["saves"] = {"least_share": 0.1, "most_share": 0.4}
    assert remedies["larger sends"]["saves"]["most_share"] > 0.4
    text = promise_between(before, after)
    assert text is not None and text.startswith("promised for `sendfile(2)`: 10 to 40 % less")


def test_records_without_advice_have_no_promise() -> None:
    assert promise_between(derive(watched_record()), derive(watched_record())) is None


@pytest.mark.parametrize("answer", ["no", "n/a"])
def test_remedies_that_do_not_help_promise_nothing(answer: str) -> None:
    before = with_advice(watched_record(size=8192))
    for row in before["advice"]["remedies"]:
        row["answer"] = answer
    assert promise_between(before, with_advice(watched_record(size=16_384))) is None

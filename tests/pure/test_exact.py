"""The exact tier: rows and identities of records with function hooks."""

from __future__ import annotations

from typing import Any

import pytest
from builders import raw_record
from builders.exact import with_functions
from copyscope import ledger, record
from copyscope.render.exact_table import exact_lines
from copyscope.zerocopy_life import at_most
from hypothesis import given
from hypothesis import strategies as st

ARMS = ("unprobed", "ledger", "functions")


def exact_record(impl: str = "zero_copy", **options: Any) -> dict[str, Any]:
    return with_functions(raw_record(impl, arms=ARMS, **options))


def identities(raw: dict[str, Any]) -> dict[str, Any]:
    rows = ledger.derive(raw)["identities"]
    return {row["name"]: row for row in rows if row["name"].startswith("functions_")}


@pytest.mark.parametrize("impl", ["one_copy", "two_copy", "zero_copy"])
def test_a_balanced_record_holds(impl: str) -> None:
    full = ledger.derive(exact_record(impl))
    assert full["verdict"]["valid"], full["verdict"]["reasons"]
    assert record.validate(full) == []
    assert {row["holds"] for row in identities(exact_record(impl)).values()} == {True}
    assert sum(row["share"] for row in full["exact"] if row["side"] == "sender") == pytest.approx(1)


@pytest.mark.parametrize(
    ("category", "name"),
    [("copy_in", "copy_in"), ("pin", "pin"), ("deferred", "deferred"), ("copy_out", "copy_out")],
)
def test_one_byte_too_many_is_found(category: str, name: str) -> None:
    raw = exact_record()
    next(cell for cell in raw["functions"]["cells"] if cell["category"] == category)["bytes"] += 1
    assert identities(raw)[f"functions_{name}"]["holds"] is False


def test_self_times_that_do_not_add_up_are_found() -> None:
    raw = exact_record()
    raw["functions"]["cells"][0]["self_ns"] *= 10
    assert identities(raw)["functions_sender_self"]["holds"] is False


def test_a_hook_that_is_missing_is_unchecked_with_its_reason() -> None:
    raw = exact_record()
    hook = next(row for row in raw["hooks"] if row["id"] == "copy_in" and row["instrument"] == "functions")
    hook |= {"state": "missing", "reason": "inlined or absent in this kernel"}
    found = identities(raw)["functions_copy_in"]
    assert found["holds"] is None and "inlined or absent" in found["reason"]


def test_either_bracket_of_the_copy_is_enough() -> None:
    raw = exact_record()
    hook = next(row for row in raw["hooks"] if row["id"] == "copy_in" and row["instrument"] == "functions")
    raw["hooks"].append({**hook, "id": "copy_in_check"})
    hook |= {"state": "missing", "reason": "inlined or absent in this kernel"}
    assert identities(raw)["functions_copy_in"]["holds"] is True


def test_without_function_hooks_there_is_no_row() -> None:
    full = ledger.derive(raw_record("one_copy"))
    assert full["exact"] == [] and identities(raw_record("one_copy")) == {}


def life(raw: dict[str, Any]) -> dict[str, Any]:
    section = ledger.derive(raw)["zerocopy_life"]
    assert section is not None
    return dict(section)


def test_the_owner_of_deferred_copies_is_who_sent_whoever_ran_them() -> None:
    raw = exact_record()
    (owned,) = life(raw)["owners"]
    copied = sum(
        s["sender"]["zerocopy"]["bytes_copied"] for s in raw["run"]["segments"] if s["arm"] == "functions"
    )
    assert owned["owner_side"] == "sender" and owned["bytes"] == copied > 0
    assert [run["side"] for run in owned["runs"]] == ["sender", "receiver"]
    assert sum(run["bytes"] for run in owned["runs"]) == copied


def test_quantiles_are_upper_ends_and_0_is_before_the_return() -> None:
    raw = exact_record()
    (notified,) = life(raw)["notified"]
    assert (notified["p50_ns"], notified["p99_ns"]) == (0, 1279)
    raw["functions"]["completion_latency"][0]["histogram"]["buckets"] = []
    (notified,) = life(raw)["notified"]
    assert notified["p50_ns"] is None


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 50)), min_size=1),
    st.floats(0.01, 1),
)
def test_at_most_is_at_least_the_quantile_and_in_its_bucket(
    widths: list[tuple[int, int, int]], share: float
) -> None:
    buckets, low = [], 0
    for gap, width, count in widths:
        buckets.append([low + gap, low + gap + width, count])
        low += gap + width
    # each value at the top of its bucket
    values = [high - 1 for _, high, count in buckets for _ in range(count)]
    limit = at_most(buckets, share)
    assert limit is not None
    assert sum(value <= limit for value in values) >= share * len(values) - 1e-6
    assert sum(value < limit for value in values) < share * len(values) + 1e-6


def test_a_copy_of_unknown_owner_breaks_the_identity() -> None:
    raw = exact_record()
    raw["functions"]["owners"][0]["owner_side"] = None
    assert identities(raw)["functions_owner"]["holds"] is False
    assert [row["owner_side"] for row in life(raw)["owners"]][-1] in (None, "sender")


@pytest.mark.parametrize(
    ("key", "name"), [("copied", "functions_copied"), ("zerocopied", "functions_completions")]
)
def test_a_completion_too_many_is_found(key: str, name: str) -> None:
    raw = exact_record()
    raw["functions"]["completions"][0][key] += 1
    assert identities(raw)[name]["holds"] is False


def test_without_their_hooks_owners_are_unknown_and_say_why() -> None:
    raw = exact_record()
    raw["functions"] |= dict.fromkeys(("owners", "completions", "completion_latency"))
    hook = next(row for row in raw["hooks"] if row["id"] == "zerocopy_use")
    hook |= {"state": "missing", "reason": "msg_zerocopy_realloc: inlined or absent in this kernel"}
    full = ledger.derive(raw)
    assert full["zerocopy_life"] is None and record.validate(full) == []
    found = {row["name"]: row for row in full["identities"]}
    for name in ("functions_owner", "functions_copied", "functions_completions"):
        assert found[name]["holds"] is None and "msg_zerocopy_realloc" in found[name]["reason"]


def test_bytes_of_the_page_look_up_are_shown_as_pages() -> None:
    full = ledger.derive(exact_record())
    (row,) = [row for row in full["exact"] if row["category"] == "pin_pages"]
    assert row["ledger_name"] == "pin" and row["bytes"] == 4096 * row["calls"]
    (line,) = [line.plain for line in exact_lines(full, 100) if line.plain.startswith("pin_pages")]
    assert f"{row['calls']:,} pages" in line


def test_the_lines_fit_and_name_owner_runner_and_latency() -> None:
    lines = [line.plain for line in exact_lines(ledger.derive(exact_record()), 100)]
    text = " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= 100
    assert "copies of the sender's memory" in text and "softirq on the receiver" in text
    assert "notified p50 by its return, p99 at most 1.28 us after its return" in text

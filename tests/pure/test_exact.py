"""The exact tier: rows and identities of records with function hooks."""

from __future__ import annotations

from typing import Any

import pytest
from builders import raw_record
from builders.exact import with_functions
from copyscope import ledger, record

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

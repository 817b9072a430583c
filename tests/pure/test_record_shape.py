"""The quick look at a record lets nothing pass that the walk names, and stops nothing that it does not."""

from __future__ import annotations

import copy
import math
from typing import Any

import builders
import pytest
from copyscope.ledger.derive import derive
from copyscope.record.schema import DERIVED, RAW
from copyscope.record.shape import find_problems, fitting
from hypothesis import given, settings
from hypothesis import strategies as st

Record = dict[str, Any]
SHAPE = {**RAW, **DERIVED}
FITS = fitting(SHAPE)
FULL = [
    derive(builders.raw_record(impl, pmu=pmu)) for impl in ("two_copy", "zero_copy") for pmu in (False, True)
]
WRONG: tuple[Any, ...] = (
    None,
    True,
    1,
    0.5,
    math.inf,
    math.nan,
    "text",
    [],
    [math.inf],
    {},
    {"x": math.nan},
    [{"a": 1}],
)


@pytest.mark.parametrize("full", FULL)
def test_a_whole_record_passes_both(full: Record) -> None:
    assert FITS(full) and find_problems(full, SHAPE) == []


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_quick_look_agrees_with_the_walk(data: st.DataObject) -> None:
    full = copy.deepcopy(data.draw(st.sampled_from(FULL)))
    owner: Any = full
    while True:
        keys = list(owner) if isinstance(owner, dict) else list(range(len(owner)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(owner[key], (dict, list)) or not owner[key] or data.draw(st.integers(0, 4)) == 0:
            break
        owner = owner[key]
    match data.draw(st.sampled_from(("change", "remove", "add"))):
        case "change":
            owner[key] = data.draw(st.sampled_from(WRONG))
        case "remove":
            del owner[key]
        case "add" if isinstance(owner, dict):
            owner[data.draw(st.sampled_from(("speed", "speed_ns", "reason")))] = data.draw(
                st.sampled_from(WRONG)
            )
    # an object that says `reason` where none is expected is looked at in detail, and may well be whole
    quick, problems = FITS(full), find_problems(full, SHAPE)
    assert not (quick and problems)
    assert quick or problems or "reason" in owner

# SPDX-License-Identifier: GPL-2.0-only
"""The gate of function hooks (one call in N is timed): it is chosen, its reason is given, and it is kept."""

from typing import Any

import pytest
from profiling import SLOW, broken_identities, is_root, record_of
from test_functions import cells, why_not

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

DURATION_S = 2 if SLOW == 1 else 6


@pytest.fixture(scope="module", autouse=True)
def function_hooks() -> None:
    reason = why_not("fentry")
    if reason:
        pytest.skip(reason)


def profiled(*options: str) -> dict[str, Any]:
    record = record_of("--duration", str(DURATION_S), *options, check=None)
    assert broken_identities(record) == []
    return record


def timed_part(record: dict[str, Any]) -> float:
    timed, calls = (
        sum(int(cell[key]) for cell in record["functions"]["cells"]) for key in ("timed_calls", "calls")
    )
    return timed / calls


def segments(record: dict[str, Any], phase: str) -> list[dict[str, Any]]:
    return [segment for segment in record["run"]["segments"] if segment["phase"] == phase]


@pytest.mark.parametrize(("impl", "size"), [("one_copy", "64"), ("zero_copy", "64K")])
def test_auto_chooses_the_gate_gives_its_reason_and_counts_every_call(impl: str, size: str) -> None:
    record = profiled("--impl", impl, "--size", size)
    functions, reason = record["functions"], record["run"]["tier_reason"]
    gate = functions["gate"]
    assert 1 <= gate <= 1024 and gate & (gate - 1) == 0
    timed_words = "every copy" if gate == 1 else f"1 copy in {gate:,}"
    assert (
        f"; {timed_words} timed: all " in reason
        and " clock readings of " in reason
        and "the goal at 64 " in reason
    )
    assert functions["read_cost"]["look_ns"] > 0
    # Counts of the warm-up, in which N was chosen, are dropped; these sums would show them.
    sent = sum(segment["sides"]["sender"]["bytes"] for segment in segments(record, "functions"))
    assert sent > 0 and len(segments(record, "warmup")) == 2
    assert cells(record, "copy_out", "bytes") == sent
    assert cells(record, "pin" if impl == "zero_copy" else "copy_in", "bytes") == sent
    rows = [row for row in record["exact"] if row["timed_calls"]]
    assert {row["side"] for row in rows} >= {"sender", "receiver"}
    for row in rows:
        assert row["method"] == ("exact" if gate == 1 else f"exact 1/{gate}")
        assert row["cpu_ns"] is not None
        assert (row["ci"] is not None) == (gate > 1) or row["reasons"]["ci"]
    if sum(cell["calls"] for cell in functions["cells"]) > 100 * gate:
        assert timed_part(record) == pytest.approx(1 / gate, rel=0.3)
    assert record["overhead"]["phases"]["functions"]["ratio"] is not None


def test_a_given_gate_is_kept() -> None:
    record = profiled("--impl", "one_copy", "--gate", "4")
    assert record["functions"]["gate"] == 4
    assert record["run"]["tier_reason"].endswith("; 1 copy in 4 timed: --gate")
    assert timed_part(record) == pytest.approx(1 / 4, rel=0.3)
    assert len(segments(record, "warmup")) == 1
    assert record["overhead"]["phases"]["functions"]["ratio"] is not None


def test_with_few_messages_every_call_is_timed() -> None:
    record = record_of("--messages", "23", "--instruments", "functions", check=None)
    assert record["functions"]["gate"] == 1
    assert record["run"]["tier_reason"].endswith("; every copy timed: --messages")

"""What watching cost: the whole watch beside the segments that count nothing but bytes."""

from typing import Any

import pytest
from builders.watched import CALLS, EDGE_NS, SEGMENT_NS, SIZE, watched_record
from copyscope.ledger.derive import derive
from copyscope.ledger.headline import cost_of_watching
from copyscope.record.check import typed_whole
from copyscope.record.derived import Watching
from copyscope.show.evidence import watching_lines
from copyscope.show.first_screen import watching_text
from msgspec import convert

Record = dict[str, Any]


def watched(slower: dict[str, float] | None = None, **options: Any) -> Record:
    """A record whose segments of a phase took so many times as long."""
    raw = watched_record(**options)
    for segment in raw["run"]["segments"]:
        longer = (slower or {}).get(segment["phase"], 1.0)
        segment["end_ns"] = segment["begin_ns"] + round(longer * SEGMENT_NS)
    return raw


def cost(raw: Record) -> Any:
    return derive(raw)["overhead"]["watching"]


def test_a_watch_that_changes_nothing_costs_nothing() -> None:
    found = cost(watched())
    assert (found["ratio"], found["low"], found["high"]) == pytest.approx((1.0, 1.0, 1.0))
    assert (found["reason"], found["pairs"], found["level"]) == (None, 3, 0.95)
    assert watching_text(convert(found, Watching)) == "watching cost 0.0 % of goodput (0.0 to 0.0)"


def test_each_kind_of_segment_counts_for_its_time() -> None:
    """Three segments of the same bytes in a block: 1 and 1 and 2 times as long."""
    found = cost(watched({"calls": 2.0}))
    whole_ns = 4 * SEGMENT_NS + 3 * 2 * EDGE_NS
    moved = 3 * (CALLS + 2 * CALLS * EDGE_NS / SEGMENT_NS) * SIZE
    assert found["ratio"] == pytest.approx(moved / whole_ns / (CALLS * SIZE / SEGMENT_NS))
    certain = convert(found, Watching)
    assert "being watched cost it about 25 % of its goodput" in cost_of_watching(certain)


def test_standing_still_while_hooks_come_and_go_counts() -> None:
    raw = watched()
    for segment in raw["run"]["segments"]:
        segment["sides"]["target"]["edge_ns"] += SEGMENT_NS
    assert cost(raw)["ratio"] == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"blocks": 2}, "2 pairs of segments"),
        ({"phases": ("ledger", "calls")}, "there is no control"),
        ({"phases": ("unprobed",)}, "no segment of this phase"),
    ],
)
def test_what_cannot_be_known_says_why(options: Any, said: str) -> None:
    found = cost(watched(**options))
    assert found["ratio"] is None and said in found["reason"]
    assert watching_text(convert(found, Watching)) == "what watching cost: n/a"


def test_the_screens_say_when_it_is_unclear() -> None:
    raw = watched()
    for segment in raw["run"]["segments"]:
        if segment["phase"] == "ledger":
            longer = 0.5 + segment["block"] / 2
            segment["end_ns"] = segment["begin_ns"] + round(longer * SEGMENT_NS)
    made = derive(raw)
    found = convert(made["overhead"]["watching"], Watching)
    assert watching_text(found).startswith("what watching cost is unclear: 0.0 % of goodput (")
    text = " ".join(" ".join(line.plain for line in watching_lines(typed_whole(made), found, 200)).split())
    assert "too noisy to tell" in text and "copyscope's own work took 0.1 % of one CPU" in text
    assert cost_of_watching(found) == ""


def test_what_is_taken_by_mapping_is_compared_where_it_is_counted() -> None:
    """In its first unprobed segment nobody knows yet that it maps: that block has no control."""
    found = cost(watched(maps=True))
    assert (found["ratio"], found["pairs"]) == (None, 2)
    assert cost(watched(maps=True, blocks=5))["ratio"] == pytest.approx(1.0)

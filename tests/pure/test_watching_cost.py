# SPDX-License-Identifier: GPL-2.0-only
"""The cost of watching: goodput of the whole watch, compared with segments that only count bytes."""

import io
from typing import Any

import pytest
from builders.documents import derive, typed_whole
from builders.watched import CALLS, EDGE_NS, SEGMENT_NS, SIZE, watched_record
from copyscope.ledger.headline import watching_remark
from copyscope.ledger.hook_cost import hook_share, hook_text
from copyscope.record.derived import Watching
from copyscope.show import first_screen
from copyscope.show.evidence import watching_lines
from copyscope.show.first_screen import watching_text
from msgspec import convert
from rich.console import Console

Record = dict[str, Any]


def watched(slower: dict[str, float] | None = None, **options: Any) -> Record:
    """Return a record with the segments of some phases longer by a factor."""
    raw = watched_record(**options)
    for segment in raw["run"]["segments"]:
        longer = (slower or {}).get(segment["phase"], 1.0)
        segment["end_ns"] = segment["begin_ns"] + round(longer * SEGMENT_NS)
    return raw


def cost(raw: Record) -> Any:
    return derive(raw)["overhead"]["watching"]


def test_a_watch_that_changes_nothing_costs_nothing() -> None:
    watching = cost(watched())
    assert (watching["ratio"], watching["low"], watching["high"]) == pytest.approx((1.0, 1.0, 1.0))
    assert (watching["reason"], watching["pairs"], watching["level"]) == (None, 3, 0.95)
    assert watching_text(convert(watching, Watching)) == "watching cost 0.0 % of goodput (0.0 to 0.0)"


def test_each_segment_counts_in_proportion_to_its_time() -> None:
    """A block has three segments with the same bytes; the last takes twice as long."""
    watching = cost(watched({"calls": 2.0}))
    block_ns = 4 * SEGMENT_NS + 3 * 2 * EDGE_NS
    moved_bytes = 3 * (CALLS + 2 * CALLS * EDGE_NS / SEGMENT_NS) * SIZE
    assert watching["ratio"] == pytest.approx(moved_bytes / block_ns / (CALLS * SIZE / SEGMENT_NS))
    certain = convert(watching, Watching)
    assert "being watched cost it about 25 % of its goodput" in watching_remark(certain)


def test_a_faster_watched_program_is_no_negative_cost() -> None:
    """Without instruments, each segment takes 2 % longer."""
    full = derive(watched({"unprobed": 1.02}))
    assert full["overhead"]["watching"]["ratio"] > 1
    console = Console(file=io.StringIO(), width=80)
    first_screen.render(typed_whole(full), console)
    assert isinstance(console.file, io.StringIO)
    assert "; watching cost nothing measurable; " in " ".join(console.file.getvalue().split())


def test_time_for_attaching_hooks_counts_as_cost() -> None:
    raw = watched()
    for segment in raw["run"]["segments"]:
        segment["sides"]["target"]["edge_ns"] += SEGMENT_NS
    assert cost(raw)["ratio"] == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"blocks": 2}, "2 pairs of segments"),
        ({"phases": ("ledger", "calls")}, "there is no control"),
        ({"phases": ("unprobed",)}, "no segment of this phase"),
    ],
)
def test_an_unknown_cost_has_a_reason(options: Any, reason: str) -> None:
    watching = cost(watched(**options))
    assert watching["ratio"] is None and reason in watching["reason"]
    assert watching_text(convert(watching, Watching)) == "what watching cost: n/a"


def test_the_screens_mention_an_unclear_cost() -> None:
    raw = watched()
    for segment in raw["run"]["segments"]:
        if segment["phase"] == "ledger":
            longer = 0.5 + segment["block"] / 2
            segment["end_ns"] = segment["begin_ns"] + round(longer * SEGMENT_NS)
    full = derive(raw)
    watching = convert(full["overhead"]["watching"], Watching)
    assert watching_text(watching).startswith("what watching cost could not be measured: 0.0 % of goodput (")
    text = " ".join(" ".join(line.plain for line in watching_lines(typed_whole(full), watching, 200)).split())
    assert "too noisy to tell" in text and "copyscope's own work took 0.1 % of one CPU" in text
    assert watching_remark(watching) == ""


def test_mapped_bytes_are_compared_in_segments_that_count_them() -> None:
    """Mapping is noticed after the first unprobed segment, so that block has no control."""
    watching = cost(watched(maps=True))
    assert (watching["ratio"], watching["pairs"]) == (None, 2)
    assert cost(watched(maps=True, blocks=5))["ratio"] == pytest.approx(1.0)


def test_the_cost_of_the_byte_hooks_is_estimated_from_the_calls() -> None:
    """165 ns for each of 500,000 calls a second are 8.25 % of a CPU."""
    raw = watched()
    raw["target"] |= {"send_calls": 800_000, "receive_calls": 200_000, "span_s": 2.0}
    for segment in raw["run"]["segments"]:
        duration_ns = segment["end_ns"] - segment["begin_ns"]
        segment["sides"]["target"]["process_cpu_ns"] = duration_ns // 2
    run = typed_whole(derive(raw))
    assert hook_share(run.raw) == pytest.approx(0.165, rel=1e-3)
    assert hook_text(run.raw) == "counting its bytes takes about 16 % of its CPU time"
    raw["target"] |= {"send_calls": 8_000, "receive_calls": 2_000}
    assert hook_text(typed_whole(derive(raw)).raw) == ""

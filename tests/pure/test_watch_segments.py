"""What is kept of a long run: its record is the same as if all of it had been, and its memory is not."""

import tracemalloc
from typing import Any

import pytest
from builders.watched import seen_of
from copyscope.record.assemble import Identity, assemble
from copyscope.record.moved import BLOCKS_KEPT, Past, forget


def remembered(seen: Any) -> Any:
    """As a watched run does it: one segment after the other is appended, and older ones are forgotten."""
    every, seen.segments, seen.sums = list(seen.segments), [], {}
    for segment in every:
        seen.segments.append(segment)
        forget(seen.segments, seen.sums)
    return seen


def record(seen: Any) -> dict[str, Any]:
    identity = Identity("long", None, 0, 0, 1, None, None)
    return assemble(seen, identity, 199, target={"how": "pid", "name": "x"})


@pytest.mark.parametrize("kind", [{}, {"zerocopy": True, "copied": 100}, {"receives": 4096}])
def test_the_record_of_a_long_run_is_that_of_all_its_segments(kind: dict[str, Any]) -> None:
    whole, kept = record(seen_of(blocks=20, **kind)), record(remembered(seen_of(blocks=20, **kind)))
    assert kept == whole
    # 20 blocks of three segments, of 1,000 calls of 64 KiB each and what moved at their edges
    assert len(kept["run"]["segments"]) == 60
    assert [segment["index"] for segment in kept["run"]["segments"]] == list(range(60))


def test_an_hour_takes_as_much_memory_as_a_minute_but_for_its_rows() -> None:
    seen = seen_of(blocks=1000)
    every, seen.segments, seen.sums = seen.segments, [], {}
    sizes = []
    tracemalloc.start()
    try:
        for number, segment in enumerate(every):
            seen.segments.append(segment)
            every[number] = None  # type: ignore[call-overload]
            forget(seen.segments, seen.sums)
            if number in (60, len(every) - 1):
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    whole = [segment for segment in seen.segments if not isinstance(segment, Past)]
    assert {segment["block"] for segment in whole} == set(range(1000 - BLOCKS_KEPT, 1000))
    # 980 blocks of three segments: of each its numbers, and little else
    assert sizes[1] - sizes[0] < 3 * 980 * 450

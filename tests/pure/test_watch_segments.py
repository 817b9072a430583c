# SPDX-License-Identifier: GPL-2.0-only
"""Long runs: the details of old segments are dropped, which saves memory and does not change the record."""

import tracemalloc
from typing import Any

import pytest
from builders.documents import assemble
from builders.watched import seen_of
from copyscope.record.assemble import RecordIdentity
from copyscope.record.moved import BLOCKS_KEPT, PastSegment, VolumeSums, forget

TARGET_KEYS = {
    "comm": None,
    "cgroup": None,
    "netns": None,
    "follow": True,
    "command": None,
    "duration_s": 1.0,
}


def with_old_segments_dropped(watched: Any) -> Any:
    """Append the segments one by one and drop details of old segments, as a watched run does."""
    all_segments, watched.segments, watched.sums = list(watched.segments), [], VolumeSums()
    for segment in all_segments:
        watched.segments.append(segment)
        forget(watched.segments, watched.sums)
    return watched


def record(watched: Any) -> dict[str, Any]:
    identity = RecordIdentity("long", None, 0, 0, 1, None, None)
    return assemble(watched, identity, 199, target={"how": "pid", "name": "x", **TARGET_KEYS})


@pytest.mark.parametrize("kind", [{}, {"zerocopy": True, "copied": 100}, {"receives": 4096}])
def test_dropped_details_do_not_change_the_record(kind: dict[str, Any]) -> None:
    complete, shortened = (
        record(seen_of(blocks=20, **kind)),
        record(with_old_segments_dropped(seen_of(blocks=20, **kind))),
    )
    assert shortened == complete
    # 20 blocks of three segments
    assert len(shortened["run"]["segments"]) == 60
    assert [segment["index"] for segment in shortened["run"]["segments"]] == list(range(60))


def test_a_long_run_needs_little_more_memory_than_a_short_one() -> None:
    watched = seen_of(blocks=1000)
    all_segments, watched.segments, watched.sums = watched.segments, [], VolumeSums()
    sizes = []
    tracemalloc.start()
    try:
        for number, segment in enumerate(all_segments):
            watched.segments.append(segment)
            all_segments[number] = None  # type: ignore[call-overload]
            forget(watched.segments, watched.sums)
            if number in (60, len(all_segments) - 1):
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    detailed = [segment for segment in watched.segments if not isinstance(segment, PastSegment)]
    assert {segment.block for segment in detailed} == set(range(1000 - BLOCKS_KEPT, 1000))
    # the numbers of 980 blocks of three segments, and little else
    assert sizes[1] - sizes[0] < 3 * 980 * 450

"""A program with one fault is told of that fault first."""

from pathlib import Path

import pytest
from copyscope import paths
from profiling import is_root, record_of
from programs import Record

pytestmark = [
    pytest.mark.all,
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]
MOVES = paths.OUTPUT / "tests" / "moves"


def why(how: str, directory: Path) -> Record:
    """What `why` says of such a program, over loopback, where all zero-copy sends are copied."""
    words = ("--duration", "3", "--", str(MOVES), how, "4s", str(directory / how))
    record = record_of(*words, verb="why", check=None)
    if record["buffers"] and record["buffers"][0]["given_back_sends"] is None:
        pytest.skip("before 5.14 nobody sees notices")
    found: Record = record["why"]
    return found


def test_waiting_for_each_notice_is_named_with_the_time_that_it_takes(tmp_path: Path) -> None:
    found = {one["code"]: one for one in why("wait_each", tmp_path)["problems"]}
    # which of the two comes first depends on how busy the machine is
    assert 0.5 < found["waits"]["wall_share"] <= 1
    assert "copied" in found


def test_the_flag_without_the_option_is_named(tmp_path: Path) -> None:
    (only,) = why("flag_alone", tmp_path)["problems"]
    assert only["code"] == "no_option" and "SO_ZEROCOPY" in only["change"]


def test_a_copy_on_this_machine_and_a_peer_that_reads_slowly_are_named(tmp_path: Path) -> None:
    first, *others = why("wait_never", tmp_path)["problems"]
    assert first["code"] == "copied" and "local delivery" in first["evidence"]
    assert [one["code"] for one in others] == ["slow_peer"]

# SPDX-License-Identifier: GPL-2.0-only
"""The collector obeys each line of its input, or answers why it does not, and continues."""

import contextlib
import os
from collections.abc import Iterator

import pytest
from copyscope.base import paths
from copyscope.base.errors import RunError
from copyscope.run.child import Child
from links import attached_tracepoints
from profiling import SLOW, is_root

pytestmark = [pytest.mark.live, pytest.mark.skipif(not is_root(), reason="needs root to load BPF")]


@contextlib.contextmanager
def collecting(*options: str) -> Iterator[Child]:
    collector = Child("collector", [str(paths.COLLECTOR), *options])
    try:
        collector.expect("ready", 30 * SLOW)
        yield collector
    finally:
        collector.end()


def test_an_unknown_instrument_is_refused_and_nothing_is_attached() -> None:
    # A list longer than 64 bytes, which was once the limit.
    long = "open watch,copies,packets,shape," + "," * 60 + "nonsense"
    with collecting("--watch") as collector:
        for line in ("open nonsense", "open watch,nonsense", long):
            with pytest.raises(RunError, match="unknown instrument"):
                collector.ask(line, "opened")
            assert not attached_tracepoints(collector.pid)
        collector.ask(f"open {',' * 80}watch", "opened", 30 * SLOW)
        assert attached_tracepoints(collector.pid)


def test_our_own_traffic_has_no_instrument_packets() -> None:
    with collecting() as collector, pytest.raises(RunError, match="unknown instrument"):
        collector.ask("open packets", "opened")


def refusal(collector: Child, line: bytes) -> str:
    """Write a line to the collector, and return the error that it answers."""
    assert collector.process.stdin is not None
    with memoryview(line + b"\n") as remaining:
        written = 0
        while written < len(remaining):
            written += os.write(collector.process.stdin.fileno(), remaining[written:])
    with pytest.raises(RunError) as refused:
        collector.expect("report")
    return str(refused.value).removeprefix("collector: ")


def test_malformed_lines_are_refused_and_the_next_line_is_obeyed() -> None:
    with collecting() as collector:
        assert refusal(collector, b"x" * 10_000_000) == "too long: at most 4095 bytes"
        assert refusal(collector, b"open\0bytes") == "not printable ASCII"
        assert refusal(collector, b"\xff\xfe") == "not printable ASCII"
        assert refusal(collector, b"nonsense") == "no such command"
        for pid in (b"-1", b"0", b"1x", b"99999999999", b""):
            assert refusal(collector, b"target sender " + pid).startswith("expected: sender|receiver")
        assert refusal(collector, b"gate -1").startswith("expected: N")
        assert collector.ask("report", "report")["abi_version"] == 1

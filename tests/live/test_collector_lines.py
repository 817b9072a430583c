"""What the collector is told: it does all of it, or says why not, and goes on."""

import contextlib
import os
from collections.abc import Iterator

import pytest
from copyscope import paths
from copyscope.errors import RunError
from copyscope.run.child import Child
from links import attached
from profiling import SLOW, is_root

pytestmark = [pytest.mark.live, pytest.mark.skipif(not is_root(), reason="needs root to load BPF")]


@contextlib.contextmanager
def collecting(*options: str) -> Iterator[Child]:
    made = Child("collector", [str(paths.COLLECTOR), *options])
    try:
        made.expect("ready", 30 * SLOW)
        yield made
    finally:
        made.end()


def test_an_instrument_that_is_none_is_refused_and_nothing_is_attached() -> None:
    # More than the 64 bytes at which the list once ended.
    long = "open watch,copies,packets,shape," + "," * 60 + "nonsense"
    with collecting("--watch") as collector:
        for line in ("open nonsense", "open watch,nonsense", long):
            with pytest.raises(RunError, match="no such instrument here"):
                collector.ask(line, "opened")
            assert not attached(collector.pid)
        collector.ask(f"open {',' * 80}watch", "opened", 30 * SLOW)
        assert attached(collector.pid)


def test_what_is_watched_only_is_no_instrument_of_our_own_traffic() -> None:
    with collecting() as collector, pytest.raises(RunError, match="no such instrument here"):
        collector.ask("open packets", "opened")


def refusal(collector: Child, line: bytes) -> str:
    assert collector.process.stdin is not None
    with memoryview(line + b"\n") as left:
        written = 0
        while written < len(left):
            written += os.write(collector.process.stdin.fileno(), left[written:])
    with pytest.raises(RunError) as refused:
        collector.expect("report")
    return str(refused.value).removeprefix("collector: ")


def test_lines_that_are_none_are_answered_and_the_next_one_is_obeyed() -> None:
    with collecting() as collector:
        assert refusal(collector, b"x" * 10_000_000) == "too long: at most 4095 bytes"
        assert refusal(collector, b"open\0bytes") == "not printable ASCII"
        assert refusal(collector, b"\xff\xfe") == "not printable ASCII"
        assert refusal(collector, b"nonsense") == "no such command"
        for pid in (b"-1", b"0", b"1x", b"99999999999", b""):
            assert refusal(collector, b"target sender " + pid).startswith("expected: sender|receiver")
        assert refusal(collector, b"gate -1").startswith("expected: N")
        assert collector.ask("report", "report")["abi_version"] == 1

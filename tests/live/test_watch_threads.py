"""A program whose threads say how long each of them ran (threads.c): the table by thread says the same."""

import json
from pathlib import Path

import pytest
from copyscope import paths
from copyscope.ledger.attribution import side_times
from copyscope.ledger.threads import by_thread
from copyscope.record.check import typed_whole
from profiling import SLOW, broken_identities, is_root
from programs import SAMPLED, watch

PROGRAM = paths.OUTPUT / "tests" / "threads"

pytestmark = [
    pytest.mark.live,
    pytest.mark.quiet,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif(not PROGRAM.exists(), reason="needs threads: make .output/tests/threads"),
]


def test_each_name_has_its_time_and_its_copies(tmp_path: Path) -> None:
    report, seconds = tmp_path / "report", str(2 if SLOW == 1 else 3 * SLOW)
    record = watch(
        *SAMPLED, "--whole", "--frequency", "997", "--", str(PROGRAM), seconds, str(report), check=None
    )
    assert broken_identities(record) == []
    truth = json.loads(report.read_text())
    run = typed_whole(record)
    found = {one.name: one for one in by_thread(run.raw, side_times(run.raw)["target"])}
    samples = sum(one.samples for one in found.values())
    for name, cpu_ns in truth.items():
        # Four times the spread of so many samples of two things.
        near = max(0.04, 2 / samples**0.5)
        assert found[name].share.share == pytest.approx(cpu_ns / sum(truth.values()), abs=near), name
    # Each copy is of the thread that makes it, and of no other.
    assert max(found, key=lambda name: found[name].copies["gather"] or 0.0) == "copies"
    assert max(found, key=lambda name: found[name].copies["copy_in"] or 0.0) == "sends"
    assert (found["copies"].copies["gather"] or 0.0) > 0.8 * (found["copies"].share.share or 0.0)
    assert found["calculates"].copies["gather"] == pytest.approx(0, abs=0.01)

# SPDX-License-Identifier: GPL-2.0-only
"""The threads of the collector have no data race: all of it runs under the thread sanitizer.

The C tests (tests/c) test the threads alone. Here they work with hooks and maps of a real kernel.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from copyscope.base import paths
from copyscope.run.child import Child
from crowds import CROWD, crowd
from profiling import SLOW, is_root
from programs import splice_pipeline

COLLECTOR = paths.OUTPUT / "tests" / "collector-threads"
# The sanitizer needs fixed addresses, which strong address randomization may occupy (vm.mmap_rnd_bits).
WITHOUT_RANDOMIZATION: tuple[str, ...] = ("setarch", "-R")
if subprocess.run([*WITHOUT_RANDOMIZATION, "true"], check=False).returncode:  # refused in a container
    WITHOUT_RANDOMIZATION = ()

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    *(
        pytest.mark.skipif(not program.exists(), reason=f"make {program.relative_to(paths.ROOT)}")
        for program in (COLLECTOR, CROWD)
    ),
    pytest.mark.skipif(SLOW > 1, reason="the sanitizer and an emulated processor together take minutes"),
]


@pytest.fixture
def stderr_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """File of the collector's stderr, to which the sanitizer reports, as the seal (seal.h) forbids others."""
    monkeypatch.setenv("TSAN_OPTIONS", "exitcode=66")
    path = tmp_path / "stderr"
    yield path
    assert "ThreadSanitizer" not in path.read_text(), path.read_text()


def start_collector(exit_: ExitStack, stderr_path: Path, *options: str) -> Child:
    redirect = ("sh", "-c", 'exec "$@" 2> "$0"', str(stderr_path))
    collector = Child("collector", [*redirect, *WITHOUT_RANDOMIZATION, str(COLLECTOR), *options])
    exit_.callback(collector.end)
    collector.expect("ready", 60)
    collector.ask("symbols", "symbols", 60)
    return collector


def report_and_end(collector: Child) -> None:
    """Close all instruments, ask for the report, and wait until the collector exits with status 0."""
    collector.ask("close", "closed", 60)
    collector.ask("report", "report", 60)
    assert collector.process.wait(60) == 0


def test_sampling_while_processes_join_has_no_data_race(stderr_path: Path) -> None:
    with ExitStack() as exit_:
        crowd_program = exit_.enter_context(crowd("joiners", 100))
        collector = start_collector(exit_, stderr_path, "--watch", "--frequency", "1000")
        collector.ask("open watch,volume", "opened", 60)
        collector.ask(f"target target {crowd_program.pid}", "target")
        for starts_crowd in (True, False):
            collector.ask("open sampler,calls", "opened", 60)
            if starts_crowd:
                crowd_program.begin()
                crowd_program.wait()
            collector.ask("close", "closed", 60)
            collector.ask("samples", "samples", 60)
        report_and_end(collector)


def test_hooks_attached_at_the_first_splice_have_no_data_race(stderr_path: Path) -> None:
    with ExitStack() as exit_:
        pid = exit_.enter_context(splice_pipeline())
        collector = start_collector(exit_, stderr_path, "--watch")
        collector.ask(f"target target {pid}", "target")
        collector.ask("open watch,volume,copies", "opened", 60)
        time.sleep(0.3)
        collector.ask("volume", "volume", 60)
        report_and_end(collector)

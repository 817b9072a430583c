"""No two threads of the collector touch the same without a lock: all of it under the thread sanitizer.

Its C tests (tests/c) try these threads by themselves; here they meet hooks and maps of a real kernel.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from copyscope import paths
from copyscope.run.child import Child
from crowds import CROWD, crowd
from profiling import SLOW, is_root
from programs import splice_pipeline

COLLECTOR = paths.OUTPUT / "tests" / "collector-threads"
# The sanitizer has its own places in memory, and addresses may be too random for them (vm.mmap_rnd_bits).
AT_FIXED_PLACES: tuple[str, ...] = ("setarch", "-R")
if subprocess.run([*AT_FIXED_PLACES, "true"], check=False).returncode:  # refused in a container
    AT_FIXED_PLACES = ()

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    *(
        pytest.mark.skipif(not built.exists(), reason=f"make {built.relative_to(paths.ROOT)}")
        for built in (COLLECTOR, CROWD)
    ),
    pytest.mark.skipif(SLOW > 1, reason="the sanitizer and an emulated processor together take minutes"),
]


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Its stderr, where the sanitizer writes what it finds: it can open no file for that (seal.h)."""
    monkeypatch.setenv("TSAN_OPTIONS", "exitcode=66")
    stderr = tmp_path / "stderr"
    yield stderr
    assert "ThreadSanitizer" not in stderr.read_text(), stderr.read_text()


def started(exit_: ExitStack, said: Path, *options: str) -> Child:
    into = ("sh", "-c", 'exec "$@" 2> "$0"', str(said))
    collector = Child("collector", [*into, *AT_FIXED_PLACES, str(COLLECTOR), *options])
    exit_.callback(collector.end)
    collector.expect("ready", 60)
    collector.ask("symbols", "symbols", 60)
    return collector


def report_and_end(collector: Child) -> None:
    collector.ask("close", "closed", 60)
    collector.ask("report", "report", 60)
    assert collector.process.wait(60) == 0


def test_samples_while_processes_join(said: Path) -> None:
    with ExitStack() as exit_:
        made = exit_.enter_context(crowd("joiners", 100))
        collector = started(exit_, said, "--watch", "--frequency", "1000")
        collector.ask("open watch,volume", "opened", 60)
        collector.ask(f"target target {made.pid}", "target")
        for begins in (True, False):
            collector.ask("open sampler,calls", "opened", 60)
            if begins:
                made.begin()
                made.wait()
            collector.ask("close", "closed", 60)
            collector.ask("samples", "samples", 60)
        report_and_end(collector)


def test_hooks_that_come_on_sight(said: Path) -> None:
    with ExitStack() as exit_:
        pid = exit_.enter_context(splice_pipeline())
        collector = started(exit_, said, "--watch")
        collector.ask(f"target target {pid}", "target")
        collector.ask("open watch,volume,copies", "opened", 60)
        time.sleep(0.3)
        collector.ask("volume", "volume", 60)
        report_and_end(collector)

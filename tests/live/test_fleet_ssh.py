"""The fleet by real ssh: a host is an sshd in namespaces of its own, spoken to through a pipe; none listens.

All hosts are this machine: what is tested is who is asked, what fails how, and that nothing is left.
"""

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import far_hosts
import pytest
from copyscope import paths
from far_hosts import fleet
from profiling import SLOW, is_root

BUNDLE = paths.OUTPUT / "bundle" / f"copyscope-{os.uname().machine}.tar.gz"
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to make namespaces"),
    pytest.mark.skipif(far_hosts.SSHD is None, reason="no sshd: make .output/tests/openssh"),
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with hosts to ask."""
    far_hosts.make(tmp_path)
    return tmp_path


def test_hosts_that_answer_and_one_that_refuses_the_key_are_rows_of_one_table(place: Path) -> None:
    running = fleet(place, "web1\nstranger\nweb2\n", "--", "doctor")
    table, errors = running.communicate(timeout=60 * SLOW)
    assert running.returncode == 1, errors
    kernel = os.uname().release
    assert [line.split()[:2] for line in table.splitlines() if line.startswith("web")] == [
        ["web1", kernel],
        ["web2", kernel],
    ]
    assert "1 of 3 unreachable: stranger: " in table and "Permission denied" in table
    kept = sorted((place / "out").glob("host=*/*/*.json"))
    assert [path.parts[-3] for path in kept] == ["host=web1", "host=web2"]
    assert all(json.loads(path.read_text())["findings"] for path in kept)


@pytest.mark.skipif(not BUNDLE.exists(), reason="no bundle: make bundle")
def test_a_host_without_copyscope_is_brought_one_of_which_nothing_stays(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No --tree is there: what answers is what was brought, of static programs."""
    far = place / "far"
    far.mkdir()
    monkeypatch.setenv("TMPDIR", str(far))
    running = fleet(place, "here\n", "--tree", "/nowhere", "--bundle", str(BUNDLE), "--", "drill")
    table, errors = running.communicate(timeout=60 * SLOW)
    assert (running.returncode, list(far.iterdir())) == (0, []), table + errors
    (kept,) = (place / "out").glob("host=*/*/*.json")
    assert {row["path"] for row in json.loads(kept.read_text())["ways"]} >= {"lo", "veth"}
    # A byte more than its hash was made of: nothing is sent.
    changed = place / BUNDLE.name
    changed.write_bytes(BUNDLE.read_bytes() + b"x")
    shutil.copy(f"{BUNDLE}.sha256", place)
    running = fleet(place, "here\n", "--bundle", str(changed), "--", "drill")
    _, errors = running.communicate(timeout=60 * SLOW)
    assert running.returncode == 2 and "its SHA-256 is not that beside it" in errors


def of_runs() -> set[str]:
    """The traffic and the collector that there are now."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if words[0] in (str(paths.TRAFFIC), str(paths.COLLECTOR)) and "--check" not in words:
                found.add(f"{words[0]}, process {entry.name}")
    return found


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL, signal.SIGSTOP])
def test_nothing_remains_over_there_when_the_fleet_ends_or_is_no_longer_heard(
    place: Path, how: signal.Signals
) -> None:
    """SIGSTOP of its ssh is a network that is cut: connected, and silent."""
    before = of_runs()
    running = fleet(place, "web1\n", "--", "run", "--duration", "60", "--quiet")
    try:
        (ssh,) = wait_until(lambda: children_of(running.pid))
        wait_until(lambda: len(of_runs() - before) == 3)
        if how == signal.SIGSTOP:
            os.kill(ssh, how)
        else:
            running.send_signal(how)
        began = time.monotonic()
        wait_until(lambda: of_runs() <= before)
        assert time.monotonic() - began < 5 * SLOW
    finally:
        if how == signal.SIGSTOP:
            running.send_signal(signal.SIGINT)  # which ends an ssh that is stopped, too
        table, errors = running.communicate(timeout=20 * SLOW)
    wait_until(lambda: not Path(f"/proc/{ssh}").exists())
    if how != signal.SIGKILL:
        said = table + errors
        assert running.returncode == 130 and "1 of 1 interrupted: web1" in table, said


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


Found = TypeVar("Found")


def wait_until(look: Callable[[], Found]) -> Found:
    end = time.monotonic() + 60 * SLOW
    while not (found := look()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
    return found

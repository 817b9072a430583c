"""The fleet over real ssh (far_hosts.py): a host is an sshd in namespaces of its own. Nothing stays there."""

import json
import os
import signal
import time
from pathlib import Path

import far_hosts
import pytest
from far_hosts import fleet, of_runs, wait_until
from profiling import SLOW, is_root

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to make namespaces"),
    pytest.mark.skipif(far_hosts.SSHD is None, reason="no sshd: make .output/tests/openssh"),
]
pytest.importorskip("ansible", reason="make .venv/.ready-ansible")
INVENTORY = """\
[web]
web1
web2
[other]
stranger
nopython ansible_host=web3 ansible_python_interpreter=/nowhere/python3
[local]
here ansible_connection=local
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with hosts to ask, and an ansible of nobody's settings."""
    far_hosts.make(tmp_path)
    (tmp_path / "ansible.cfg").write_text("[defaults]\n")
    monkeypatch.setenv("ANSIBLE_CONFIG", str(tmp_path / "ansible.cfg"))
    monkeypatch.setenv("ANSIBLE_HOME", str(tmp_path / "ansible"))
    return tmp_path


def test_all_that_can_come_of_a_host_is_a_row_of_one_table(place: Path) -> None:
    running = fleet(place, INVENTORY, "--limit", "all:!local", "--", "doctor")
    table, errors = running.communicate(timeout=90 * SLOW)
    assert running.returncode == 1, errors
    rows = {line.split()[0]: line for line in table.splitlines() if line[:3] in ("web", "str", "nop")}
    assert set(rows) == {"web1", "web2", "stranger", "nopython"}, table + errors
    assert os.uname().release in rows["web1"] and os.uname().release in rows["web2"]
    assert "unreachable" in rows["stranger"] and "failed" in rows["nopython"]
    assert "Permission denied" in table and "/nowhere/python3" in table
    kept = sorted((place / "out").rglob("host=*/*/*.json"))
    assert [path.parts[-3] for path in kept] == ["host=web1", "host=web2"]
    assert all(json.loads(path.read_text())["findings"] for path in kept)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_remains_there_and_here_when_the_fleet_ends(
    place: Path, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    before, ansible = of_runs(), of_ansible()
    here = place / "here"
    here.mkdir()
    monkeypatch.setenv("TMPDIR", str(here))
    words = ("--limit", "web1", "--", "run", "--duration", "60", "--quiet")
    running = fleet(place, INVENTORY, *words)
    try:
        wait_until(lambda: len(of_runs() - before) == 3)
        running.send_signal(how)
        began = time.monotonic()
        wait_until(lambda: of_runs() <= before and of_ansible() <= ansible)
        assert time.monotonic() - began < 5 * SLOW
        wait_until(lambda: not list(here.iterdir()))
    finally:
        table, _ = running.communicate(timeout=20 * SLOW)
    if how == signal.SIGINT:
        assert running.returncode == 130 and "1 of 1 interrupted: web1" in table


def test_a_host_that_takes_too_long_is_timed_out(place: Path) -> None:
    before = of_runs()
    words = ("--limit", "web1", "--timeout", "3", "--", "run", "--duration", "60", "--quiet")
    running = fleet(place, INVENTORY, *words)
    table, errors = running.communicate(timeout=60 * SLOW)
    assert running.returncode == 1 and "1 of 1 timed out: web1" in table, table + errors
    assert of_runs() <= before


def of_ansible() -> set[int]:
    """Processes of ansible, and connections of its."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if b"ansible" in line and b"pytest" not in line:
            found.add(int(entry.name))
    return found

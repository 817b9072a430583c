# SPDX-License-Identifier: GPL-2.0-only
"""copyscope fleet over real ssh.

Hosts are sshds in new namespaces (far_hosts.py). Nothing remains on a host.
"""

import json
import os
import signal
import time
from pathlib import Path

import far_hosts
import pytest
from far_hosts import copyscope_pids, start_fleet, wait_until
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
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory with hosts for ssh, and a configuration of ansible without the settings of any user."""
    far_hosts.make(tmp_path)
    (tmp_path / "ansible.cfg").write_text("[defaults]\n")
    monkeypatch.setenv("ANSIBLE_CONFIG", str(tmp_path / "ansible.cfg"))
    monkeypatch.setenv("ANSIBLE_HOME", str(tmp_path / "ansible"))
    return tmp_path


def test_every_outcome_of_a_host_is_a_row_of_one_table(directory: Path) -> None:
    running = start_fleet(directory, INVENTORY, "--limit", "all:!local", "--", "doctor")
    table, errors = running.communicate(timeout=90 * SLOW)
    assert running.returncode == 1, errors
    rows = {line.split()[0]: line for line in table.splitlines() if line[:3] in ("web", "str", "nop")}
    assert set(rows) == {"web1", "web2", "stranger", "nopython"}, table + errors
    assert os.uname().release in rows["web1"] and os.uname().release in rows["web2"]
    assert "unreachable" in rows["stranger"] and "failed" in rows["nopython"]
    assert "Permission denied" in table and "/nowhere/python3" in table
    record_paths = sorted((directory / "out").rglob("host=*/*/*.json"))
    assert [path.parts[-3] for path in record_paths] == ["host=web1", "host=web2"]
    assert all(json.loads(path.read_text())["findings"] for path in record_paths)


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_remains_on_hosts_and_here_when_the_fleet_ends(
    directory: Path, monkeypatch: pytest.MonkeyPatch, signal_number: signal.Signals
) -> None:
    before, ansible = copyscope_pids(), ansible_pids()
    tmpdir = directory / "here"
    tmpdir.mkdir()
    monkeypatch.setenv("TMPDIR", str(tmpdir))
    arguments = ("--limit", "web1", "--", "run", "--duration", "60", "--quiet")
    running = start_fleet(directory, INVENTORY, *arguments)
    try:
        wait_until(lambda: len(copyscope_pids() - before) == 3)
        running.send_signal(signal_number)
        began = time.monotonic()
        wait_until(lambda: copyscope_pids() <= before and ansible_pids() <= ansible)
        assert time.monotonic() - began < 5 * SLOW
        wait_until(lambda: not list(tmpdir.iterdir()))
    finally:
        table, _ = running.communicate(timeout=60 * SLOW)
    if signal_number == signal.SIGINT:
        assert running.returncode == 130 and "1 of 1 interrupted: web1" in table


def test_a_host_that_takes_too_long_is_timed_out(directory: Path) -> None:
    before = copyscope_pids()
    arguments = ("--limit", "web1", "--timeout", "3", "--", "run", "--duration", "60", "--quiet")
    running = start_fleet(directory, INVENTORY, *arguments)
    table, errors = running.communicate(timeout=60 * SLOW)
    assert running.returncode == 1 and "1 of 1 timed out: web1" in table, table + errors
    assert copyscope_pids() <= before


def ansible_pids() -> set[int]:
    """Return the pids of ansible and of its connections."""
    pids = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if b"ansible" in line and b"pytest" not in line:
            pids.add(int(entry.name))
    return pids

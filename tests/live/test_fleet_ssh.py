"""The fleet by real ssh: a host is an sshd in namespaces of its own, spoken to through a pipe; none listens.

All hosts are this machine: what is tested is who is asked, what fails how, and that nothing is left.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from copyscope import paths
from profiling import SLOW, is_root

# Unpacked for the tests alone (Makefile): an installed package begins to listen on all addresses.
UNPACKED = paths.OUTPUT / "tests" / "openssh"
BUNDLE = paths.OUTPUT / "bundle" / f"copyscope-{os.uname().machine}.tar.gz"
SSHD = next((path for path in (Path("/usr/sbin/sshd"), UNPACKED / "usr/sbin/sshd") if path.exists()), None)
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to make namespaces"),
    pytest.mark.skipif(SSHD is None, reason="no sshd: make .output/tests/openssh"),
]
SSHD_CONFIG = """\
HostKey {place}/host
AuthorizedKeysFile {place}/user.pub
StrictModes no
UsePAM no
PermitRootLogin yes
"""
# sshd wants a user and a directory of its own; both are there for it alone.
HOST = """\
#!/bin/sh
exec unshare --net --mount --propagation private sh -c '
mount --bind {place}/passwd /etc/passwd && mount -t tmpfs none /run && mkdir /run/sshd &&
exec env LD_LIBRARY_PATH={libraries} {sshd} -i -f {place}/sshd_config'
"""
SSH_CONFIG = """\
Host web* stranger
  ProxyCommand {place}/host.sh
  User root
  HostKeyAlias far
  UserKnownHostsFile {place}/known
  IdentitiesOnly yes
Host web*
  IdentityFile {place}/user
Host stranger
  IdentityFile {place}/other
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory with a configuration of ssh that knows the hosts, and `bin/ssh`, which reads it."""
    for name in ("host", "user", "other"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(command, check=True, timeout=10)
    assert SSHD is not None
    library = next(UNPACKED.glob("usr/lib/*/libwrap.so.0"), Path("/none"))
    words = {"place": tmp_path, "sshd": SSHD, "libraries": library.parent}
    (tmp_path / "sshd_config").write_text(SSHD_CONFIG.format(**words))
    (tmp_path / "ssh_config").write_text(SSH_CONFIG.format(**words))
    (tmp_path / "known").write_text(f"far {(tmp_path / 'host.pub').read_text()}")
    users = Path("/etc/passwd").read_text()
    ours = "" if "\nsshd:" in users else "sshd:x:33333:65534::/nonexistent:/usr/sbin/nologin\n"
    (tmp_path / "passwd").write_text(users + ours)
    (tmp_path / "bin").mkdir()
    for name, text in {
        "host.sh": HOST.format(**words),
        "bin/ssh": f'#!/bin/sh\nexec /usr/bin/ssh -F {shlex.quote(str(tmp_path))}/ssh_config "$@"\n',
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    yield tmp_path


def fleet(place: Path, hosts: str, *words: str) -> "subprocess.Popen[str]":
    """As tools/fleet.py runs it, which as root has a fixed PATH: without `ssh` of the test's."""
    (place / "hosts").write_text(hosts)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SUDO_")}
    return subprocess.Popen(
        [
            *(sys.executable, "-I", str(paths.ROOT / "tools" / "copyscope"), "fleet", str(place / "hosts")),
            *("--out", str(place / "out"), *words),
        ],
        env={**environment, "PATH": f"{place}/bin:{environment['PATH']}", "COLUMNS": "140"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


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
    kept = sorted((place / "out").rglob("*.json"))
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
    (kept,) = (place / "out").rglob("*.json")
    assert {row["path"] for row in json.loads(kept.read_text())["ways"]} >= {"lo", "veth"}
    # A byte more than its hash was made of: nothing is sent.
    changed = place / BUNDLE.name
    changed.write_bytes(BUNDLE.read_bytes() + b"x")
    shutil.copy(f"{BUNDLE}.sha256", place)
    running = fleet(place, "here\n", "--bundle", str(changed), "--", "drill")
    _, errors = running.communicate(timeout=60 * SLOW)
    assert running.returncode == 2 and "its SHA-256 is not that in" in errors


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
        table, _ = running.communicate(timeout=20 * SLOW)
    wait_until(lambda: not Path(f"/proc/{ssh}").exists())
    if how != signal.SIGKILL:
        assert running.returncode == 130 and "1 of 1 interrupted: web1" in table


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


Found = TypeVar("Found")


def wait_until(look: Callable[[], Found]) -> Found:
    end = time.monotonic() + 60 * SLOW
    while not (found := look()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
    return found

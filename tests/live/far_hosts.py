"""Hosts for tests: an sshd in namespaces of its own for each connection, through a pipe; none listens."""

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from copyscope import paths
from profiling import SLOW

# Unpacked for the tests alone (Makefile): an installed package begins to listen on all addresses.
UNPACKED = paths.OUTPUT / "tests" / "openssh"
SSHD = next((path for path in (Path("/usr/sbin/sshd"), UNPACKED / "usr/sbin/sshd") if path.exists()), None)
SSHD_CONFIG = """\
HostKey {place}/host
AuthorizedKeysFile {place}/user.pub
StrictModes no
UsePAM no
PermitRootLogin yes
SetEnv {environment}
"""
LIBRARIES = next(UNPACKED.glob("usr/lib/*-linux-*"), Path("/none"))
# OpenSSH 9.8 and newer start these for each connection, where their package puts them.
PARTS = {"SshdSessionPath": "sshd-session", "SshdAuthPath": "sshd-auth"}
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


def parts_of_sshd() -> str:
    """Lines of sshd_config: where an sshd that was unpacked for the tests has its parts."""
    found = {} if SSHD is None or not SSHD.is_relative_to(UNPACKED) else PARTS
    at = {word: UNPACKED / "usr/lib/openssh" / name for word, name in found.items()}
    return "".join(f"{word} {path}\n" for word, path in at.items() if path.exists())


def make(
    place: Path, host: str = HOST, ssh_config: str = SSH_CONFIG, tmp: str | None = None, **more: str
) -> None:
    """A configuration of ssh, and `bin/ssh`, which reads it: as it stands with hosts web*, and `stranger`,
    which refuses the key. `host` starts a sshd, `tmp` is TMPDIR of its sessions (None: ours), `more` is
    filled in.
    """
    # Where the tests run under sudo this tree is the user's, and there root may run it only as if by sudo.
    caller = [f"{name}={value}" for name, value in os.environ.items() if name in ("SUDO_UID", "SUDO_GID")]
    # The directory is of whoever calls `fleet()`: root, without sudo.
    os.chown(place, os.geteuid(), -1)
    for name in ("host", "user", "other"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)]
        subprocess.run(command, check=True, timeout=10)
    assert SSHD is not None
    there = " ".join([f"TMPDIR={tmp or tempfile.gettempdir()}", *caller])
    words = {"place": place, "sshd": SSHD, "libraries": LIBRARIES, "environment": there, **more}
    (place / "sshd_config").write_text(SSHD_CONFIG.format(**words) + parts_of_sshd())
    (place / "ssh_config").write_text(ssh_config.format(**words))
    (place / "known").write_text(f"far {(place / 'host.pub').read_text()}")
    users = Path("/etc/passwd").read_text()
    ours = "" if "\nsshd:" in users else "sshd:x:33333:65534::/nonexistent:/usr/sbin/nologin\n"
    (place / "passwd").write_text(users + ours)
    (place / "bin").mkdir()
    for name, text in {
        "host.sh": host.format(**words),
        "bin/ssh": f'#!/bin/sh\nexec /usr/bin/ssh -F {shlex.quote(str(place))}/ssh_config "$@"\n',
    }.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)


def fleet(place: Path, inventory: str, *words: str) -> "subprocess.Popen[str]":
    """As copyscope fleet runs it, which as root has a fixed PATH: without `ssh` of the test's."""
    (place / "hosts").write_text(inventory)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SUDO_")}
    return subprocess.Popen(
        [
            *(sys.executable, "-I", "-m", "copyscope", "fleet", str(place / "hosts")),
            *("--out", str(place / "out"), *words),
        ],
        env={**environment, "PATH": f"{place}/bin:{environment['PATH']}", "COLUMNS": "140"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


Found = TypeVar("Found")


def wait_until(look: Callable[[], Found]) -> Found:
    end = time.monotonic() + 60 * SLOW
    while not (found := look()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
    return found


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def of_runs() -> set[int]:
    """The processes of the traffic and of the collector that there are now."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if words[0] in (str(paths.TRAFFIC), str(paths.COLLECTOR)) and "--check" not in words:
                found.add(int(entry.name))
    return found

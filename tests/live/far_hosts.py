# SPDX-License-Identifier: GPL-2.0-only
"""Hosts for tests of ssh: each connection starts an sshd in new namespaces and speaks to it by a pipe."""

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

from copyscope.base import paths
from profiling import SLOW

# An sshd unpacked for the tests (Makefile), because an installed package would listen on all addresses.
UNPACKED_OPENSSH = paths.OUTPUT / "tests" / "openssh"
SSHD = next(
    (path for path in (Path("/usr/sbin/sshd"), UNPACKED_OPENSSH / "usr/sbin/sshd") if path.exists()), None
)
SSHD_CONFIG = """\
HostKey {directory}/host
AuthorizedKeysFile {directory}/user.pub
StrictModes no
UsePAM no
PermitRootLogin yes
SetEnv {environment}
"""
LIBRARIES = next(UNPACKED_OPENSSH.glob("usr/lib/*-linux-*"), Path("/none"))
# Programs that OpenSSH 9.8 and newer start for each connection, by option of sshd_config.
SESSION_PROGRAMS = {"SshdSessionPath": "sshd-session", "SshdAuthPath": "sshd-auth"}
# The sshd user and the directory /run/sshd that sshd needs exist only in this mount namespace.
HOST = """\
#!/bin/sh
exec unshare --net --mount --propagation private sh -c '
mount --bind {directory}/passwd /etc/passwd && mount -t tmpfs none /run && mkdir /run/sshd &&
exec env LD_LIBRARY_PATH={libraries} {sshd} -i -f {directory}/sshd_config'
"""
SSH_CONFIG = """\
Host web* stranger
  ProxyCommand {directory}/host.sh
  User root
  HostKeyAlias far
  UserKnownHostsFile {directory}/known
  IdentitiesOnly yes
Host web*
  IdentityFile {directory}/user
Host stranger
  IdentityFile {directory}/other
"""


def session_program_options() -> str:
    """Return the lines of sshd_config that locate the session programs of the unpacked sshd."""
    names = {} if SSHD is None or not SSHD.is_relative_to(UNPACKED_OPENSSH) else SESSION_PROGRAMS
    program_paths = {option: UNPACKED_OPENSSH / "usr/lib/openssh" / name for option, name in names.items()}
    return "".join(f"{option} {path}\n" for option, path in program_paths.items() if path.exists())


def make(
    directory: Path, host: str = HOST, ssh_config: str = SSH_CONFIG, tmp: str | None = None, **more: str
) -> None:
    """Write keys, the configuration of ssh and sshd, and `bin/ssh`, which reads that configuration.

    By default the hosts are web*, and `stranger`, which refuses the key. The script `host` starts sshd.
        `tmp` is TMPDIR of the sessions (None: that of the tests). `more` fills further fields of the texts.
    """
    # Under sudo this tree belongs to the user; root may run it on the host only with the variables of sudo.
    caller = [f"{name}={value}" for name, value in os.environ.items() if name in ("SUDO_UID", "SUDO_GID")]
    # copyscope fleet needs a directory that belongs to root here.
    os.chown(directory, os.geteuid(), -1)
    for name in ("host", "user", "other"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
        subprocess.run(command, check=True, timeout=60)
    assert SSHD is not None
    session_environment = " ".join([f"TMPDIR={tmp or tempfile.gettempdir()}", *caller])
    fields = {
        "directory": directory,
        "sshd": SSHD,
        "libraries": LIBRARIES,
        "environment": session_environment,
        **more,
    }
    (directory / "sshd_config").write_text(SSHD_CONFIG.format(**fields) + session_program_options())
    (directory / "ssh_config").write_text(ssh_config.format(**fields))
    (directory / "known").write_text(f"far {(directory / 'host.pub').read_text()}")
    passwd = Path("/etc/passwd").read_text()
    sshd_user = "" if "\nsshd:" in passwd else "sshd:x:33333:65534::/nonexistent:/usr/sbin/nologin\n"
    (directory / "passwd").write_text(passwd + sshd_user)
    (directory / "bin").mkdir()
    for name, text in {
        "host.sh": host.format(**fields),
        "bin/ssh": f'#!/bin/sh\nexec /usr/bin/ssh -F {shlex.quote(str(directory))}/ssh_config "$@"\n',
    }.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)


def start_fleet(directory: Path, inventory: str, *arguments: str) -> "subprocess.Popen[str]":
    """Start `copyscope fleet` as a Python module: bin/copyscope would remove our `ssh` from the PATH."""
    (directory / "hosts").write_text(inventory)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SUDO_")}
    return subprocess.Popen(
        [
            *(sys.executable, "-I", "-m", "copyscope.commands", "fleet", str(directory / "hosts")),
            *("--out", str(directory / "out"), *arguments),
        ],
        env={**environment, "PATH": f"{directory}/bin:{environment['PATH']}", "COLUMNS": "140"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


Value = TypeVar("Value")


def wait_until(condition: Callable[[], Value]) -> Value:
    deadline = time.monotonic() + 60 * SLOW
    while not (value := condition()):
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)
    return value


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def copyscope_pids() -> set[int]:
    """Return the pids of all running senders, receivers and collectors."""
    pids = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if words[0] in (str(paths.TRAFFIC), str(paths.COLLECTOR)) and "--check" not in words:
                pids.add(int(entry.name))
    return pids

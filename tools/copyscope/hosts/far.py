"""Another machine, by the user's own ssh: one connection, one bundle, and a guard there that ends both.

The guard (guard.sh) is the connection's own command; all other commands go through its connection. It ends
when that does, or when nothing has come through it for four seconds, and with it all that was brought and
started.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Self

from copyscope.complaints import Complaints
from copyscope.errors import RunError, UsageError
from copyscope.escaping import one_line, visible
from copyscope.files.saving import invoking_ids
from copyscope.hosts import bundle
from copyscope.hosts.host import SAID_MAX, Host
from copyscope.places import OnHost
from copyscope.start.environment import of_caller
from copyscope.topology.workload_user import WorkloadUser, environment_of, invoking_user

GUARD = Path(__file__).with_name("guard.sh")
# As root, by sudo where the login is not root's. $1 is the guard; $0 stands before what this sh says.
OPENING = """\
guard=$1
set -- guard "${SSH_CONNECTION:-}" "${TMPDIR:-/tmp}"
[ "$(id -u)" = 0 ] && exec sh -c "$guard" "$@"
exec sudo -n -- sh -c "$guard" "$@"
"""
# Here: when we are killed, nobody else removes the directory of ssh's socket.
HOLD = '"$@"; status=$?; rm -rf -- "$0"; exit "$status"'
FACTS_S = 60.0
READY_S = 60.0
BEAT_S = 1.0
# What the guard may take to end all and to go, when it is asked to.
END_S = 3.0
LOOK_S = 0.5
LINE_MAX_BYTES = 4096
# ssh(1): its own status when it could not connect, or the connection was cut.
SSH_FAILED = 255


class Far(Host):
    """A host as ssh(1) names it. A context: connected from its entry to its exit."""

    near = False

    def __init__(self, name: str, bundles: Path) -> None:
        super().__init__()
        if not name or name.startswith("-") or not name.isprintable() or " " in name:
            raise UsageError(f"{visible(name)!r}: not a host: write it as ssh takes it")
        self.name = name
        self.bundles = bundles
        # As whom ssh runs here: the user who called sudo has the keys.
        self._caller = invoking_user() if invoking_ids() and os.geteuid() == 0 else None
        self.environment = of_caller(os.environ)
        if self._caller is not None:
            self.environment |= environment_of(self._caller)

    def __enter__(self) -> Self:
        self._ready, self._pending = False, b""
        self._over = threading.Event()
        self._beating: threading.Thread | None = None
        self._directory = tempfile.mkdtemp(prefix="copyscope-")  # 0700
        if self._caller is not None:
            os.chown(self._directory, self._caller.uid, self._caller.gid)
        through = OnHost(self.name, f"{self._directory}/ssh")
        self.place = through
        command = ("sh", "-c", OPENING, "copyscope", GUARD.read_text(encoding="utf-8"))
        caller = self._caller.argv() if self._caller else ()
        try:
            self._guard = subprocess.Popen(
                [*caller, "sh", "-c", HOLD, self._directory, *through.first(command)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.environment,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise RunError(f"{self.name}: ssh: {error.strerror}: install openssh-client") from None
        assert self._guard.stderr
        self._complaints = Complaints(self._guard.stderr)
        try:
            self._settle()
        except BaseException:
            self._close()
            raise
        return self

    def _settle(self) -> None:
        """Who is there, and the programs for it."""
        words = self._line(FACTS_S).split()
        if len(words) < 4 or words[0] != "copyscope" or not words[2].isdecimal() or not words[3].isdecimal():
            raise RunError(self._not_ours())
        self.user = WorkloadUser(int(words[2]), int(words[3]), known=True)
        self.become = self.user.uid != 0
        self.connection = tuple(words[4:])
        sent = bundle.opening(bundle.read(self.bundles, self.name, words[1]))
        self._beating = threading.Thread(target=self._beat, args=(sent,), daemon=True)
        self._beating.start()
        word, _, directory = self._line(READY_S).partition(" ")
        if word != "ready" or not directory.startswith("/"):
            raise RunError(f"{self.name}: its guard did not say that it is ready: run it again")
        self.programs = directory
        self._ready = True

    def __exit__(self, *_: object) -> None:
        self._close()

    def why_gone(self) -> str | None:
        try:
            self._guard.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            return None
        return f"{self.name}: {self._cause()}"

    def _beat(self, opening: bytes) -> None:
        """First the bundle, then a byte a second: whoever stops saying so is not there any more."""
        assert self._guard.stdin
        with contextlib.suppress(OSError):
            view = memoryview(opening)
            while view:
                view = view[self._guard.stdin.write(view) or 0 :]
            while not self._over.wait(BEAT_S):
                self._guard.stdin.write(b".")

    def _line(self, seconds: float) -> str:
        """The next line of the guard. Raises RunError when there is none."""
        assert self._guard.stdout
        until = time.monotonic() + seconds
        while b"\n" not in self._pending:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._guard.stdout], [], [], left)[0]:
                raise RunError(f"{self.name}: no answer within {seconds:g} s: look whether `ssh` gets in")
            chunk = os.read(self._guard.stdout.fileno(), LINE_MAX_BYTES)
            if not chunk:
                self._guard.wait(END_S)
                raise RunError(f"{self.name}: {self._cause()}")
            if len(self._pending) > LINE_MAX_BYTES:
                raise RunError(self._not_ours())
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode(errors="replace")

    def _not_ours(self) -> str:
        return f"{self.name}: its first line is not ours: its login shell must print nothing"

    def _cause(self) -> str:
        """Why the guard has ended, and what to do, in one line."""
        lines = self._complaints.lines()
        said = one_line(lines[-1].rstrip("."), SAID_MAX) if lines else ""
        whole = "\n".join(lines).lower()
        if "no space left" in whole or "no room" in whole:
            return f"{said}: the disk is full: make room, or let TMPDIR there name another directory"
        if "noexec" in whole:
            return f"{said}: let TMPDIR there name another directory"
        if "sudo" in whole:
            return f"{said}: let sudo there do it without a password, or log in as root"
        if self._guard.returncode != SSH_FAILED:
            return f"{said or 'its guard there has ended'}: run it again"
        if self._ready:
            return "the connection broke: look at the network between here and there, and run it again"
        return f"{said or 'ssh did not get in'}: make `ssh {self.name} true` work without a question"

    def _close(self) -> None:
        """The guard ends all that runs there, and removes what was brought; then it is waited for."""
        self._over.set()
        if self._beating is not None:
            self._beating.join(LOOK_S)
        assert self._guard.stdin and self._guard.stdout
        if self._beating is None or not self._beating.is_alive():
            self._guard.stdin.close()
        try:
            self._guard.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._guard.pid, signal.SIGKILL)
            self._guard.wait()
        self._guard.stdout.close()
        shutil.rmtree(self._directory, ignore_errors=True)

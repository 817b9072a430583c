"""Another machine, by the user's own ssh: one connection, through which every command there goes.

What runs there is the copyscope that is installed there. Its programs read their commands from standard input
and end with it, as they do here: whatever ends us closes ours, and ssh closes theirs.
"""

import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Self

from copyscope.complaints import Complaints
from copyscope.environment import of_caller
from copyscope.errors import RunError, UsageError
from copyscope.escaping import one_line, visible
from copyscope.files.saving import invoking_ids
from copyscope.hosts.host import SAID_MAX, Host
from copyscope.places import OnHost
from copyscope.topology.workload_user import WorkloadUser, environment_of, invoking_user

# There: that root's rights are to be had and the programs run; who logs in; then it waits for our end. $0
# stands before what this sh says, $1 is the directory of the programs.
OPENING = """\
uid=$(id -u)
[ "$uid" = 0 ] || sudo -n true || exit 1
for program in collector traffic; do
	"$1/$program" --help < /dev/null > /dev/null || exit
done
echo "copyscope $uid $(id -g) ${SSH_CONNECTION:-}"
exec cat > /dev/null
"""
# Here: when we are killed, nobody else removes the directory of ssh's socket.
HOLD = '"$@"; status=$?; rm -rf -- "$0"; exit "$status"'
FACTS_S = 60.0
# What the connection may take to end.
END_S = 3.0
LOOK_S = 0.5
LINE_MAX_BYTES = 4096
# ssh(1): its own status when it could not connect, or the connection was cut.
SSH_FAILED = 255
# sh(1): what cannot be run, and what is not there.
NOT_RUN = (126, 127)


class Far(Host):
    """A host as ssh(1) names it. A context: connected from its entry to its exit."""

    near = False

    def __init__(self, name: str, tree: str) -> None:
        super().__init__()
        if not name or name.startswith("-") or not name.isprintable() or " " in name:
            raise UsageError(f"{visible(name)!r}: not a host: write it as for ssh")
        self.name = name
        self.programs = f"{tree}/.output"
        # As whom ssh runs here: the user who called sudo has the keys.
        self._caller = invoking_user() if invoking_ids() and os.geteuid() == 0 else None
        self.environment = of_caller(os.environ)
        if self._caller is not None:
            self.environment |= environment_of(self._caller)

    def __enter__(self) -> Self:
        self._ready, self._pending = False, b""
        self._directory = tempfile.mkdtemp(prefix="copyscope-")  # 0700
        if self._caller is not None:
            os.chown(self._directory, self._caller.uid, self._caller.gid)
        through = OnHost(self.name, f"{self._directory}/ssh")
        self.place = through
        command = ("sh", "-c", OPENING, "copyscope", self.programs)
        caller = self._caller.argv() if self._caller else ()
        try:
            self._ssh = subprocess.Popen(
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
        assert self._ssh.stderr
        self._complaints = Complaints(self._ssh.stderr)
        try:
            self._settle()
        except BaseException:
            self._close()
            raise
        return self

    def _settle(self) -> None:
        """Who logs in there, and from where."""
        words = self._line(FACTS_S).split()
        if len(words) < 3 or words[0] != "copyscope" or not words[1].isdecimal() or not words[2].isdecimal():
            raise RunError(self._not_ours())
        self.user = WorkloadUser(int(words[1]), int(words[2]), known=True)
        self.become = self.user.uid != 0
        self.connection = tuple(words[3:])
        self._ready = True

    def __exit__(self, *_: object) -> None:
        self._close()

    def why_gone(self) -> str | None:
        try:
            self._ssh.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            return None
        return f"{self.name}: {self._cause()}"

    def _line(self, seconds: float) -> str:
        """The next line that the connection says. Raises RunError when there is none."""
        assert self._ssh.stdout
        until = time.monotonic() + seconds
        while b"\n" not in self._pending:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._ssh.stdout], [], [], left)[0]:
                raise RunError(f"{self.name}: no answer within {seconds:g} s: check that `ssh` can log in")
            chunk = os.read(self._ssh.stdout.fileno(), LINE_MAX_BYTES)
            if not chunk:
                self._ssh.wait(END_S)
                raise RunError(f"{self.name}: {self._cause()}")
            if len(self._pending) > LINE_MAX_BYTES:
                raise RunError(self._not_ours())
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode(errors="replace")

    def _not_ours(self) -> str:
        return f"{self.name}: its first line is unexpected: its login shell must print nothing"

    def _cause(self) -> str:
        """Why the connection has ended, and what to do, in one line."""
        lines = self._complaints.lines()
        said = one_line(lines[-1].rstrip("."), SAID_MAX) if lines else ""
        if "sudo" in "\n".join(lines).lower():
            return f"{said}: allow sudo without a password there, or log in as root"
        if self._ssh.returncode in NOT_RUN:
            return f"{said}: install copyscope there, or give its directory with --tree"
        if self._ssh.returncode != SSH_FAILED:
            return f"{said or 'the process of the connection there has ended'}: run it again"
        if self._ready:
            return "the connection broke: check the network in between, and run it again"
        return f"{said or 'ssh could not log in'}: make sure `ssh {self.name} true` works without a prompt"

    def _close(self) -> None:
        """Our end closes, and with it what still runs there; then it is waited for."""
        assert self._ssh.stdin and self._ssh.stdout
        self._ssh.stdin.close()
        try:
            self._ssh.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._ssh.pid, signal.SIGKILL)
            self._ssh.wait()
        self._ssh.stdout.close()
        shutil.rmtree(self._directory, ignore_errors=True)

# SPDX-License-Identifier: GPL-2.0-only
"""Machines that take part in a run: this machine, and others that are reached over ssh."""

import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Self

from copyscope.base import paths
from copyscope.base.errors import RunError, UsageError
from copyscope.base.files import invoking_ids
from copyscope.base.process import environment_of_caller
from copyscope.base.programs import HERE, CommandLocation, LimitError, RemoteHost, ThisMachine, run_program
from copyscope.base.spelling import StderrReader, one_line, visible
from copyscope.machine import fingerprint
from copyscope.machine.fingerprint import CpuLoad, MachineFacts
from copyscope.machine.topology import Side
from copyscope.machine.topology.namespace import WorkloadUser, environment_of, invoking_user

# Sender and receiver of a run each have a machine: this machine (Host), or another machine (FarHost).
#
# The collectors and traffic programs are children of copyscope that exchange lines with it. For another
# machine the child is ssh, which passes the lines on. Only these two programs run on other machines. Times
# from the clocks of different machines are never compared.

# Time limit of a command in seconds. An emulated guest needed more than 30 s for `ip route get` while its
# only CPU loaded BPF programs.
COMMAND_S = 90.0
MESSAGE_MAX_CHARACTERS = 120


class Host:
    """This machine, and the base class of other machines: a context manager, connected inside `with`."""

    near = True
    # Words of SSH_CONNECTION on a far host: address and port of the client, address and port of the server.
    connection: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.name = HERE
        self.location: CommandLocation = ThisMachine()
        self.become = False
        self.programs = str(paths.OUTPUT)
        self.user: WorkloadUser = invoking_user()
        # Environment for ssh. None: the environment of this process.
        self.environment: dict[str, str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def why_gone(self) -> str | None:
        """Return the reason if the connection to the machine has ended, or None otherwise."""
        return None

    def argv(self, command: Sequence[str]) -> list[str]:
        """Return the local command that runs `command` on the machine as root."""
        return self.location.argv(command, become=self.become)

    def collector(self, options: Sequence[str]) -> list[str]:
        """Return the local command that runs the collector on the machine, as root."""
        return self.argv([f"{self.programs}/collector", *options])

    def traffic(self, arguments: Sequence[str]) -> list[str]:
        """Return the local command that runs the traffic program on the machine, without capabilities."""
        return self.argv([*self.user.argv(), f"{self.programs}/traffic", *arguments])

    def run(self, command: Sequence[str], next_step: str) -> str:
        """Run a command on the machine as root; return its output. Raises RunError, advising `next_step`."""
        try:
            result = run_program(self.argv(command), limit_s=COMMAND_S, environment=self.environment)
        except LimitError:
            raise RunError(
                self.why_gone()
                or f"{self.name}: {command[0]} ran longer than {COMMAND_S:g} s, or printed too much; "
                f"{next_step}"
            ) from None
        if result.status:
            lines = result.complaint.splitlines() or [f"ended with status {result.status}"]
            message = one_line(lines[-1], MESSAGE_MAX_CHARACTERS)
            raise RunError(self.why_gone() or f"{self.name}: {command[0]}: {message}; {next_step}")
        return result.text

    @contextmanager
    def _files(self, patterns: Sequence[str]) -> Iterator[Path]:
        """Yield a temporary directory on this machine with copies of the machine's files.

        `patterns`: paths of the files without the leading slash, with wildcards. Missing files are left out.
        """
        text = self.run(
            ["sh", "-c", read_files_script(patterns)], "check that /proc and /sys are mounted there"
        )
        with tempfile.TemporaryDirectory(prefix="copyscope-") as directory:
            write_files(text, Path(directory))
            yield Path(directory)

    def machine(self) -> MachineFacts:
        """Return the fingerprint of the machine, without versions of tools if it is not this machine."""
        with self._files(FINGERPRINT_FILES) as root:
            machine = fingerprint.describe_machine(root=root, tools=None if self.near else {})
        machine.reasons["steal_percent"] = "of two hosts together: machine_state.steal_ns"
        return machine

    def load(self, own_pid: int) -> CpuLoad:
        """Return the CPU times of the machine since boot, and the CPU time of its process `own_pid`."""
        try:
            with self._files(("proc/stat", f"proc/{own_pid}/stat")) as root:
                return fingerprint.read_load(read_cpu_ns(root, own_pid), root=root)
        except RunError as error:
            return CpuLoad(time.monotonic_ns(), None, reason=str(error))


def add_loads(loads: Sequence[CpuLoad]) -> CpuLoad:
    """Add up the loads of two hosts, as if a single machine had all CPUs.

    The time of the reading is that of the first host.
    """
    return CpuLoad(
        loads[0].t_ns,
        _sum([load.own_ns for load in loads]),
        _sum([load.cpus for load in loads]),
        _sum([load.busy_ns for load in loads]),
        _sum([load.softirq_ns for load in loads]),
        _sum([load.steal_ns for load in loads]),
        reason=next((load.reason for load in loads if load.reason), None),
    )


def _sum(values: Sequence[int | None]) -> int | None:
    """Return the sum, or None if one of the values is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


# All commands on another machine share one connection of the user's ssh.
#
# The commands run programs of the copyscope that is installed on the other machine. These programs read from
# standard input and exit at its end. When copyscope exits, the pipes to ssh close, and ssh closes the
# standard input of the programs.

# Script on the other machine: checks that sudo and the programs work, prints the user's ids and the addresses
# of the connection, and waits until copyscope exits. $1 is the directory of the programs. $0 is the name that
# sh prints before its messages.
LOGIN_SCRIPT = """\
uid=$(id -u)
[ "$uid" = 0 ] || sudo -n true || exit 1
for program in collector traffic; do
	"$1/$program" --help < /dev/null > /dev/null || exit
done
echo "copyscope $uid $(id -g) ${SSH_CONNECTION:-}"
exec cat > /dev/null
"""
# Script on this machine: runs ssh and removes the directory of its socket, even if copyscope is killed.
MASTER_SCRIPT = '"$@"; status=$?; rm -rf -- "$0"; exit "$status"'
# Time limit in seconds for the login.
LOGIN_S = 60.0
# Time in seconds that ssh gets to end.
DISCONNECT_S = 3.0
# Time in seconds that why_gone() waits for ssh to exit, because pipes close slightly earlier.
EXIT_CHECK_S = 0.5
LINE_MAX_BYTES = 4096
# Exit status of ssh(1) when it could not connect, or when the connection broke.
STATUS_SSH_FAILED = 255
# Exit statuses of sh(1) for a program that is not executable (126) or was not found (127).
STATUS_NOT_RUN = (126, 127)


class FarHost(Host):
    """Another machine, on which commands run over ssh."""

    near = False

    def __init__(self, name: str, tree: str) -> None:
        """Check the name of the host. `name`: destination of ssh(1). `tree`: copyscope's directory there."""
        super().__init__()
        if not name or name.startswith("-") or not name.isprintable() or " " in name:
            raise UsageError(f"{visible(name)!r}: not a host name; write the name as for ssh")
        self.name = name
        self.programs = f"{tree}/.output"
        # Under sudo, ssh runs as the user who called sudo, because that user has the keys.
        self._caller = invoking_user() if invoking_ids() and os.geteuid() == 0 else None
        self.environment = environment_of_caller(os.environ)
        if self._caller is not None:
            self.environment |= environment_of(self._caller)

    def __enter__(self) -> Self:
        """Open the master connection of ssh and log in. Raises RunError."""
        self._ready, self._pending = False, b""
        self._directory = tempfile.mkdtemp(prefix="copyscope-")  # 0700
        if self._caller is not None:
            os.chown(self._directory, self._caller.uid, self._caller.gid)
        remote = RemoteHost(self.name, f"{self._directory}/ssh")
        self.location = remote
        command = ("sh", "-c", LOGIN_SCRIPT, "copyscope", self.programs)
        caller = self._caller.argv() if self._caller else ()
        try:
            self._ssh = subprocess.Popen(
                [*caller, "sh", "-c", MASTER_SCRIPT, self._directory, *remote.master_argv(command)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.environment,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise RunError(f"{self.name}: ssh: {error.strerror}; install openssh-client") from None
        assert self._ssh.stderr
        self._stderr = StderrReader(self._ssh.stderr)
        try:
            self._read_login()
        except BaseException:
            self._close()
            raise
        return self

    def _read_login(self) -> None:
        """Read the output of LOGIN_SCRIPT: the user's ids and the addresses of the connection."""
        words = self._line(LOGIN_S).split()
        if len(words) < 3 or words[0] != "copyscope" or not words[1].isdecimal() or not words[2].isdecimal():
            raise RunError(self._unexpected_line())
        self.user = WorkloadUser(int(words[1]), int(words[2]), has_passwd_entry=True)
        self.become = self.user.uid != 0
        self.connection = tuple(words[3:])
        self._ready = True

    def __exit__(self, *_: object) -> None:
        self._close()

    def why_gone(self) -> str | None:
        try:
            self._ssh.wait(EXIT_CHECK_S)
        except subprocess.TimeoutExpired:
            return None
        return f"{self.name}: {self._why_ended()}"

    def _line(self, limit_s: float) -> str:
        """Return the next line that LOGIN_SCRIPT prints. Raises RunError if ssh ends, or after `limit_s`."""
        assert self._ssh.stdout
        until_s = time.monotonic() + limit_s
        while b"\n" not in self._pending:
            left_s = until_s - time.monotonic()
            if left_s <= 0 or not select.select([self._ssh.stdout], [], [], left_s)[0]:
                raise RunError(f"{self.name}: no answer within {limit_s:g} s; check that `ssh` can log in")
            chunk = os.read(self._ssh.stdout.fileno(), LINE_MAX_BYTES)
            if not chunk:
                self._ssh.wait(DISCONNECT_S)
                raise RunError(f"{self.name}: {self._why_ended()}")
            if len(self._pending) > LINE_MAX_BYTES:
                raise RunError(self._unexpected_line())
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode(errors="replace")

    def _unexpected_line(self) -> str:
        return f"{self.name}: unexpected output at login; make its login shell print nothing"

    def _why_ended(self) -> str:
        """Return the reason why ssh has ended, with advice, in one line."""
        lines = self._stderr.lines()
        message = one_line(lines[-1].rstrip("."), MESSAGE_MAX_CHARACTERS) if lines else ""
        if "sudo" in "\n".join(lines).lower():
            return f"{message}; allow sudo without a password there, or log in as root"
        if self._ssh.returncode in STATUS_NOT_RUN:
            return f"{message}; install copyscope there, or give its directory with --tree"
        if self._ssh.returncode != STATUS_SSH_FAILED:
            return f"{message or 'the process at the other end of ssh has ended'}; run the command again"
        if self._ready:
            return "the connection broke; check the network in between, and run the command again"
        return f"{message or 'ssh could not log in'}; make sure `ssh {self.name} true` works without a prompt"

    def _close(self) -> None:
        """Close the connection, which ends all commands on the other machine, and wait for ssh."""
        assert self._ssh.stdin and self._ssh.stdout
        self._ssh.stdin.close()
        try:
            self._ssh.wait(DISCONNECT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._ssh.pid, signal.SIGKILL)
            self._ssh.wait()
        self._ssh.stdout.close()
        shutil.rmtree(self._directory, ignore_errors=True)


__all__ = ["FarHost", "Host", "hosts_of"]


def hosts_of(sender: str | None, receiver: str | None, tree: str | None = None) -> Mapping[Side, Host]:
    """Return the machines of sender and receiver.

    `sender`, `receiver`: host names as for ssh(1); None: this machine. `tree`: directory of copyscope on
    other machines.
    """
    tree = tree or str(paths.ROOT)
    names: dict[Side, str] = {"sender": sender or HERE, "receiver": receiver or HERE}
    if names["sender"] == names["receiver"]:
        raise UsageError(
            f"--sender-at {sender} --receiver-at {receiver}: both options name the same machine; use "
            "--topology instead"
        )
    return {side: Host() if name == HERE else FarHost(name, tree) for side, name in names.items()}


# Files of /proc and /sys of another machine are copied to this machine, so that the same code reads them.
#
# The other machine is not trusted: files with unexpected names are skipped.

CPU_FOLDER = "sys/devices/system/cpu"
# All files that fingerprint.describe_machine() reads.
FINGERPRINT_FILES = (
    *("proc/sys/kernel/osrelease", "proc/sys/kernel/hostname", "proc/sys/kernel/arch", "proc/cpuinfo"),
    *("proc/sys/kernel/perf_event_paranoid", "proc/sys/kernel/kptr_restrict", "proc/cmdline"),
    *("proc/sys/kernel/nmi_watchdog", "proc/sys/kernel/numa_balancing"),
    *("proc/sys/kernel/perf_event_max_sample_rate", "proc/sys/net/core/*", "proc/sys/net/ipv4/tcp_*"),
    *("proc/sys/vm/nr_hugepages", "proc/self/limits", "proc/meminfo", "boot/config-*"),
    *(
        f"{CPU_FOLDER}/online",
        f"{CPU_FOLDER}/smt/active",
        f"{CPU_FOLDER}/vulnerabilities/*",
        f"{CPU_FOLDER}/cpufreq/boost",
    ),
    *(f"{CPU_FOLDER}/cpu*/cpufreq/scaling_governor", f"{CPU_FOLDER}/cpuidle/current_driver"),
    *(
        f"{CPU_FOLDER}/intel_pstate/no_turbo",
        f"{CPU_FOLDER}/cpu0/cache/index*/*",
        "sys/devices/system/node/online",
    ),
    *("sys/hypervisor/type", "sys/class/dmi/id/sys_vendor", "sys/class/dmi/id/product_name"),
    "sys/bus/event_source/devices/*/cpus",
    "sys/bus/event_source/devices/cpu/type",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    *("sys/kernel/security/lockdown", "sys/kernel/mm/transparent_hugepage/enabled"),
    "proc/device-tree/model",
)
# Start of the only line of the kernel's configuration, a long and sometimes compressed file, that is copied.
IRQ_TIME_CONFIG = "CONFIG_IRQ_TIME_ACCOUNTING"


def read_files_script(patterns: Sequence[str]) -> str:
    """Return a shell script that prints each line of the files that match `patterns` as `FILE:LINE`.

    The script skips missing files.
    """
    config = "boot/config-*"
    plain_patterns = " ".join(pattern for pattern in patterns if pattern != config)
    lines = ["cd /", f'grep -sH "" {plain_patterns} 2>/dev/null']
    if config in patterns:
        name = "boot/config-$(uname -r)"
        lines.append(
            f"{{ cat {name} 2>/dev/null || zcat proc/config.gz 2>/dev/null; }} | grep {IRQ_TIME_CONFIG} |"
            f' sed "s|^|{name}:|"'
        )
    return "\n".join([*lines, "exit 0"])


def write_files(text: str, root: Path) -> None:
    """Write files below the directory `root`. `text`: their lines, as read_files_script() prints them."""
    files: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, colon, content = line.partition(":")
        if colon and _is_expected(name):
            files.setdefault(name, []).append(content)
    for name, lines in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_dir():
            path.write_text("\n".join(lines) + "\n")


def _is_expected(name: str) -> bool:
    """Return True for a relative path in proc/, sys/ or boot/ without components such as `..`."""
    parts = name.split("/")
    is_in_folder = fnmatchcase(name, "[ps][ry][os]*/*") or name.startswith("boot/config-")
    return is_in_folder and len(name) < 200 and all(part not in ("", ".", "..") for part in parts)


def read_cpu_ns(root: Path, pid: int) -> int:
    """Return the CPU time of a process in ns, or 0 if the process has exited.

    `root`: directory with a copy of proc/. The time is the sum of utime and stime of proc_pid_stat(5), which
    count ticks of 10 ms.
    """
    try:
        words = (root / "proc" / str(pid) / "stat").read_text().rpartition(") ")[2].split()
        return (int(words[11]) + int(words[12])) * 10_000_000
    except (OSError, ValueError, IndexError):
        return 0

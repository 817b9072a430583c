"""Whom to watch: who is behind --pid, --comm, --cgroup or a command, checked before anything starts."""

import fcntl
import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from copyscope.errors import RunError, UsageError
from copyscope.run.program import processes

CGROUP_ROOT = Path("/sys/fs/cgroup")
NS_GET_NSTYPE = 0xB703  # ioctl_nsfs(2)
CLONE_NEWNET = 0x40000000
_PID = re.compile(r"[0-9]{1,9}")  # PID_MAX_LIMIT is 4,194,304


@dataclass(frozen=True)
class Target:
    """What was asked for, resolved. The processes may change; `find_processes` says who they are now."""

    how: str  # pid, comm, cgroup, command
    pids: tuple[int, ...] = ()
    comm: str | None = None
    cgroup: Path | None = None
    command: tuple[str, ...] = ()
    follow: bool = True
    netns: Path | None = None
    called: str | None = None  # of a cgroup: the container or the unit that was asked for
    started: list[int] = field(default_factory=list)  # the command's process, once it is there
    # When each process began that was asked about: a number is given away again (pid_max).
    _born: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for pid in self.pids:
            self._is_still(pid)

    def find_processes(self, known: set[int], followed: Collection[int] = ()) -> set[int]:
        """All processes that belong to it now; `known` are those that did so far.

        `followed`: those that do as the kernel has seen it, whichever processes had their numbers before.
        """
        if self.how == "cgroup":
            assert self.cgroup is not None
            return processes.in_cgroup(self.cgroup)
        roots = {pid for pid in (*self.pids, *self.started) if self._is_still(pid)}
        if self.comm is not None:
            roots |= processes.named(self.comm)
        if not self.follow:
            return {pid for pid in roots if processes.is_alive(pid)}
        known = {pid for pid in known if self._is_still(pid)}
        return processes.with_descendants(roots | known | set(followed))

    def is_new(self, process: processes.Process) -> bool:
        """Whether it has the number of another that is gone; said once."""
        before, self._born[process.pid] = self._born.get(process.pid), process.start
        return before is not None and before != process.start

    def _is_still(self, pid: int) -> bool:
        """Whether the number is still of the process that had it when it was first asked about."""
        process = processes.read_process(pid)
        return process is not None and self._born.setdefault(pid, process.start) == process.start

    def arguments(self) -> list[str]:
        """The collector's options."""
        argv = ["--watch"]
        if not self.follow:
            argv.append("--no-follow")
        if self.comm is not None:
            argv += ["--comm", self.comm[: processes.COMM_MAX]]
        if self.cgroup is not None:
            argv += ["--cgroup", f"{self.cgroup.stat().st_ino}:{cgroup_level(self.cgroup)}"]
        if self.netns is not None:
            argv += ["--netns", str(self.netns.stat().st_ino)]
        return argv

    def name(self) -> str:
        """How it is called in sentences."""
        if self.how == "command":
            return Path(self.command[0]).name
        if self.how == "pid":
            return ", ".join(f"{_comm(pid)}[{pid}]" for pid in self.pids)
        return self.called or f"{self.how} {self.comm or self.cgroup}"


def parse_pids(text: str) -> tuple[int, ...]:
    """`12,34`; raises UsageError for what is no pid and RunError for one that cannot be watched."""
    pids = []
    for word in map(str.strip, text.split(",")):
        if _PID.fullmatch(word) is None or int(word) == 0:
            by_name = f": by its name it is watched with --comm {word}" if word[:1].isalpha() else ""
            raise UsageError(f"--pid: {word or 'nothing'}: not a process id{by_name}")
        pids.append(int(word))
    for pid in pids:
        check_pid(pid)
    return tuple(dict.fromkeys(pids))


def check_pid(pid: int, option: str = "--pid") -> None:
    process = processes.read_process(pid)
    if process is None:
        inside = _pid_on_the_host(pid)
        more = f": inside a container it is pid {pid}, here it is pid {inside}" if inside else ""
        raise RunError(f"{option}: {pid}: no such process{more}")
    leader = _status(pid).get("Tgid", str(pid))
    problems = (
        (process.kernel, f"{process.comm} is a kernel thread: it makes no system call to be followed"),
        (not process.alive, f"{process.comm} has ended (a zombie waits for its parent)"),
        (leader != str(pid), f"is a thread of process {leader}: use {option} {leader}"),
    )
    if why := next((text for holds, text in problems if holds), None):
        raise RunError(f"{option}: {pid}: {why}")


def find_cgroup(text: str) -> Path:
    """The directory of a cgroup v2; a relative path is meant below where it is mounted."""
    path = Path(text)
    try:
        if not path.is_absolute() or not path.exists():
            # Beside hierarchies of version 1 it is mounted elsewhere, such as at /sys/fs/cgroup/unified.
            places = [place / text.lstrip("/") for place in (*_mounts(), CGROUP_ROOT)]
            path = next((place for place in places if place.exists()), places[-1])
        path = path.resolve()
        if not path.is_dir():
            raise RunError(f"--cgroup: {text}: no such directory: systemd-cgls lists the cgroups")
        if not (path / "cgroup.procs").exists() or _mount_of(path) is None:
            raise RunError(f"--cgroup: {text}: not a cgroup of version 2 (stat -f says the file system)")
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead in a circle
        raise RunError(f"--cgroup: {text}: {_why(error)}: systemd-cgls lists the cgroups") from error
    return path


def find_netns(text: str) -> Path:
    """The network namespace of a pid, or a file that holds one (ip netns: /run/netns/NAME)."""
    path = Path(text) if "/" in text else Path("/run/netns") / text
    if _PID.fullmatch(text) is not None:
        check_pid(int(text), "--netns")
        path = Path(f"/proc/{int(text)}/ns/net")
    try:
        path.stat()
    except FileNotFoundError:
        why = "no such namespace: give a pid, or a file such as /run/netns/NAME"
    except OSError as error:
        why = f"{error.strerror}: give a namespace that root may look at"
    else:
        if _is_netns(path):
            return path
        why = "not a network namespace: ip netns list, or lsns -t net, shows them"
    raise RunError(f"--netns: {text}: {why}")


def _why(error: OSError | RuntimeError) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _is_netns(path: Path) -> bool:
    """Whether the kernel says so of the file (ioctl_nsfs(2)); it refuses the question of any other file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return fcntl.ioctl(handle, NS_GET_NSTYPE) == CLONE_NEWNET
    except OSError:
        return False
    finally:
        os.close(handle)


def cgroup_level(path: Path) -> int:
    """How deep it lies: the root is 0."""
    mount = _mount_of(path)
    assert mount is not None  # find_cgroup has looked
    return len(path.relative_to(mount).parts)


def _mount_of(path: Path) -> Path | None:
    """Where the cgroup2 file system that holds a directory is mounted."""
    return next((point for point in _mounts() if path.is_relative_to(point)), None)


def _mounts() -> list[Path]:
    mounts = [
        line.split() for line in Path("/proc/self/mounts").read_text(errors="surrogateescape").splitlines()
    ]
    return [Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"]


def _comm(pid: int) -> str:
    process = processes.read_process(pid)
    return process.comm if process else "?"


def _status(pid: int) -> dict[str, str]:
    try:
        lines = (processes.PROC / str(pid) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _pid_on_the_host(inner: int) -> int | None:
    """The process that has this pid in a pid namespace of its own."""
    for process in processes.all_processes():
        ids = _status(process.pid).get("NSpid", "").split()
        if len(ids) > 1 and ids[-1] == str(inner):
            return process.pid
    return None

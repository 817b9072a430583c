"""Whom to watch: who is behind --pid, --comm, --cgroup, --container, --unit or a command.

All is checked before anything starts, from /proc and from the files of the containers' runtimes: no daemon is
asked.
"""

import fcntl
import json
import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from copyscope.errors import RunError, UsageError
from copyscope.files import regular_file
from copyscope.run import processes

CGROUP_ROOT = Path("/sys/fs/cgroup")
NS_GET_NSTYPE = 0xB703  # ioctl_nsfs(2)
CLONE_NEWNET = 0x40000000
_PID = re.compile(r"[0-9]{1,9}")  # PID_MAX_LIMIT is 4,194,304
# docker-ID.scope, libpod-ID.scope, cri-containerd-ID.scope, crio-ID.scope; docker/ID with cgroupfs.
_ID = re.compile(r"(?:^|-)([0-9a-f]{64})(?:\.scope)?$")
# A name is looked up where docker and podman keep it: ID and name of each container.
DOCKER = Path("/var/lib/docker/containers")
# Podman: below DRIVER-containers/, and in /run those that are gone after a boot (containers-storage).
PODMAN = (Path("/var/lib/containers/storage"), Path("/run/containers/storage"))
_SHORTEST = 4


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

    def forget(self, but: Collection[int]) -> None:
        """The births of all others, and of those that were asked for: these are known by them."""
        for pid in self._born.keys() - but - {*self.pids, *self.started}:
            del self._born[pid]

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
            mount = _mount_of(self.cgroup)
            assert mount is not None  # find_cgroup has looked
            level = len(self.cgroup.relative_to(mount).parts)
            argv += ["--cgroup", f"{self.cgroup.stat().st_ino}:{level}"]
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
            by_name = f": to watch it by its name: --comm {word}" if word[:1].isalpha() else ""
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


def unit_path(name: str) -> str:
    """The path of a unit's cgroup below the mount of version 2."""
    unit = name if "." in name else f"{name}.service"
    return _path_of("--unit", name, lambda part: part == unit, "systemctl status says if it runs")


def container_path(name: str) -> str:
    """The same of a container, by the beginning of its ID, or by its name."""
    ids = {known for known, called in _named() if called == name}
    # systemd writes a hyphen of a name as \x2d (systemd.unit(5)).
    machines = {f"lxc.payload.{name}", f"machine-{name}.scope", f"systemd-nspawn@{name}.service"}

    def is_it(part: str) -> bool:
        found = _ID.search(part)
        if found is None:
            return part.replace("\\x2d", "-") in machines
        return found[1] in ids or (len(name) >= _SHORTEST and found[1].startswith(name))

    return _path_of("--container", name, is_it, "give its ID, or its name in docker, podman, LXC or nspawn")


def _path_of(option: str, name: str, is_it: Callable[[str], bool], advice: str) -> str:
    """Of the processes that run now: where their path has the part. Raises RunError for none, or several."""
    found: set[str] = set()
    elsewhere: set[int] = set()
    for process in processes.all_processes():
        for version, path in _cgroups(process.pid):
            parts = path.strip("/").split("/")
            place = next((n for n, part in enumerate(parts, 1) if is_it(part)), None)
            if place is not None and version == 2:
                found.add("/".join(parts[:place]))
            elif place is not None:
                elsewhere.add(process.pid)
    if not found and elsewhere:
        pids = ",".join(map(str, sorted(elsewhere)))
        raise RunError(f"{option}: {name}: its processes are in no cgroup of version 2: use --pid {pids}")
    if not found:
        raise RunError(f"{option}: {name}: no process runs in one of that name: {advice}")
    if len(found) > 1:
        raise RunError(f"{option}: {name}: is in several: {', '.join(sorted(found))}: give one as --cgroup")
    return found.pop()


def _cgroups(pid: int) -> Iterator[tuple[int, str]]:
    """(version, path) of each hierarchy that a process is in; cgroups(7): `0::` is version 2."""
    try:
        lines = (processes.PROC / str(pid) / "cgroup").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        yield (2 if number == "0" and not controllers else 1), path


def _named() -> Iterator[tuple[str, str]]:
    """(ID, name) of the containers that docker and podman know; what cannot be read is no container."""
    for file in DOCKER.glob("*/config.v2.json"):
        known = _read(file)
        if isinstance(known, dict):
            yield file.parent.name, str(known.get("Name", "")).lstrip("/")
    for file in (file for storage in PODMAN for file in storage.glob("*-containers/*containers.json")):
        rows = _read(file)
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict):
                yield from ((str(row.get("id")), str(called)) for called in row.get("names") or ())


def _read(file: Path) -> object:
    try:
        return json.loads(regular_file.read(file))
    except (OSError, ValueError, RecursionError):
        return None

# SPDX-License-Identifier: GPL-2.0-only
"""Find the processes to watch: by --pid, --comm, --cgroup, --container or --unit, or those of a command.

The options are checked before anything starts, using /proc and the files of container runtimes. No daemon is
queried.
"""

import fcntl
import json
import os
import re
import shlex
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from copyscope.base import files
from copyscope.base.errors import RunError, UsageError
from copyscope.machine.cgroups import CONTAINER_ID, read_memberships, read_mounts
from copyscope.record.messages import TotalsMessage
from copyscope.run import processes
from copyscope.run.child import Program
from copyscope.run.perf_stat import PROCESS_ENDED, PerfStat

CGROUP_ROOT = Path("/sys/fs/cgroup")
# Most TCP sockets that are followed while all programs are watched. The maps take 20 MB less than by default.
NODE_SOCKETS_MAX = 65_536
NS_GET_NSTYPE = 0xB703  # ioctl_nsfs(2)
CLONE_NEWNET = 0x40000000
_PID = re.compile(r"[0-9]{1,9}")  # PID_MAX_LIMIT is 4,194,304
# Folder with the ID and the name of each container of docker.
DOCKER = Path("/var/lib/docker/containers")
# Folders with the IDs and names of podman's containers, below DRIVER-containers/. /run has containers that do
# not survive a boot (containers-storage).
PODMAN = (Path("/var/lib/containers/storage"), Path("/run/containers/storage"))
# Minimum number of characters of a container's ID that select the container.
_ID_PREFIX_MIN = 4


@dataclass(frozen=True)
class WatchTarget:
    """Processes to watch, as the user's options describe them. find_processes() returns the processes."""

    how: str  # method of the selection: pid, comm, cgroup, command or all
    pids: tuple[int, ...] = ()
    comm: str | None = None
    cgroup: Path | None = None
    command: tuple[str, ...] = ()
    follow: bool = True
    netns: Path | None = None
    label: str | None = None  # name of the container or unit of a cgroup
    started: list[int] = field(default_factory=list)  # pid of the command, once it exists
    # Start time of the process that had a pid when it was first read, by pid: the kernel reuses pids.
    _born: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for pid in self.pids:
            self._keeps_pid(pid)

    def find_processes(self, current: set[int], followed: Collection[int] = ()) -> set[int]:
        """Return the pids of all processes that belong to the target now.

        `current`: result of the last call. `followed`: pids that the BPF programs track; some may
        have been reused.
        """
        if self.how == "all":
            return processes.user_processes()
        if self.how == "cgroup":
            assert self.cgroup is not None
            return processes.processes_in_cgroup(self.cgroup)
        roots = {pid for pid in (*self.pids, *self.started) if self._keeps_pid(pid)}
        if self.comm is not None:
            roots |= processes.processes_named(self.comm)
        if not self.follow:
            return {pid for pid in roots if processes.is_alive(pid)}
        current = {pid for pid in current if self._keeps_pid(pid)}
        return processes.with_descendants(roots | current | set(followed))

    @property
    def gains_processes(self) -> bool:
        """True if processes may start that do not descend from those that run now."""
        return self.how in ("comm", "cgroup", "all")

    def has_reused_pid(self, process: processes.ProcessStat) -> bool:
        """Return True if a pid belonged to another process at the last call. Reports each reuse only once."""
        before, self._born[process.pid] = self._born.get(process.pid), process.start
        return before is not None and before != process.start

    def forget(self, alive: Collection[int]) -> None:
        """Forget the start times of exited processes, except those that the user named."""
        for pid in self._born.keys() - alive - {*self.pids, *self.started}:
            del self._born[pid]

    def _keeps_pid(self, pid: int) -> bool:
        """Return True if a pid still belongs to the process that had it when it was first read."""
        process = processes.read_process(pid)
        return process is not None and self._born.setdefault(pid, process.start) == process.start

    def arguments(self) -> list[str]:
        """Return the collector's options that select the processes."""
        argv = ["--watch"]
        if self.how == "all":
            argv += ["--all", "--sockets-max", str(NODE_SOCKETS_MAX)]
        if not self.follow:
            argv.append("--no-follow")
        if self.comm is not None:
            argv += ["--comm", self.comm[: processes.COMM_MAX]]
        if self.cgroup is not None:
            mount = _cgroup2_mount_of(self.cgroup)
            assert mount is not None  # find_cgroup() has checked it
            level = len(self.cgroup.relative_to(mount).parts)
            argv += ["--cgroup", f"{self.cgroup.stat().st_ino}:{level}"]
        if self.netns is not None:
            argv += ["--netns", str(self.netns.stat().st_ino)]
        return argv

    def name(self) -> str:
        """Return the target's name, for use in sentences."""
        if self.how == "command":
            return Path(self.command[0]).name
        if self.how == "pid":
            return ", ".join(f"{_comm(pid)}[{pid}]" for pid in self.pids)
        if self.how == "all":
            return "all programs"
        return self.label or self.comm or f"{self.how} {self.cgroup}"


def parse_pids(text: str) -> tuple[int, ...]:
    """Parse the value of --pid, such as `12,34`. Raises UsageError, or RunError for unusable processes."""
    pids = []
    for word in map(str.strip, text.split(",")):
        if _PID.fullmatch(word) is None or int(word) == 0:
            by_name = f"; to watch a program by its name, write --comm {word}" if word[:1].isalpha() else ""
            raise UsageError(f"--pid {shlex.quote(word)}: not a process id{by_name}")
        pids.append(int(word))
    for pid in pids:
        check_pid(pid)
    return tuple(dict.fromkeys(pids))


def check_pid(pid: int, option: str = "--pid") -> None:
    """Raise RunError if process `pid` does not exist or cannot be watched. `option`: option with the pid."""
    process = processes.read_process(pid)
    if process is None:
        host_pid = _find_host_pid(pid)
        hint = f"; pid {pid} of a container is pid {host_pid} here" if host_pid else ""
        raise RunError(f"{option} {pid}: no such process{hint}")
    leader = _status(pid).get("Tgid", str(pid))
    problems = (
        (process.kernel, f"{process.comm} is a kernel thread, which makes no system calls to follow"),
        (not process.alive, f"{process.comm} has exited (it is a zombie until its parent reaps it)"),
        (leader != str(pid), f"{pid} is a thread of process {leader}; use {option} {leader}"),
    )
    if why := next((text for holds, text in problems if holds), None):
        raise RunError(f"{option} {pid}: {why}")


def find_cgroup(text: str) -> Path:
    """Return the directory of a cgroup (version 2). A relative path starts at a cgroup2 mount point."""
    path = Path(text)
    try:
        if not path.is_absolute() or not path.exists():
            # With version 1 hierarchies, cgroup2 is mounted at another path, such as /sys/fs/cgroup/unified.
            candidates = [mount / text.lstrip("/") for mount in (*read_mounts(), CGROUP_ROOT)]
            path = next((candidate for candidate in candidates if candidate.exists()), candidates[-1])
        path = path.resolve()
        if not path.is_dir():
            raise RunError(f"--cgroup {text}: no such directory; systemd-cgls lists the cgroups")
        if not (path / "cgroup.procs").exists() or _cgroup2_mount_of(path) is None:
            raise RunError(f"--cgroup {text}: not a cgroup v2; stat -f shows the file system")
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of symbolic links
        raise RunError(f"--cgroup {text}: {_reason(error)}; systemd-cgls lists the cgroups") from error
    return path


def find_netns(text: str) -> Path:
    """Return the file of a network namespace, given a pid, a path, or a name in /run/netns (`ip netns`)."""
    path = Path(text) if "/" in text else Path("/run/netns") / text
    if _PID.fullmatch(text) is not None:
        check_pid(int(text), "--netns")
        path = Path(f"/proc/{int(text)}/ns/net")
    try:
        path.stat()
    except FileNotFoundError:
        why = "no such namespace; give a pid, or a file such as /run/netns/NAME"
    except OSError as error:
        why = f"{error.strerror}; give a namespace that root may open"
    else:
        if _is_netns(path):
            return path
        why = "not a network namespace; ip netns list and lsns -t net list the namespaces"
    raise RunError(f"--netns {text}: {why}")


def _reason(error: OSError | RuntimeError) -> str:
    """Return an error's text without its errno and path."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _is_netns(path: Path) -> bool:
    """Return True if a file is a network namespace. ioctl_nsfs(2) fails on any other file."""
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


def _cgroup2_mount_of(path: Path) -> Path | None:
    """Return the mount point of the cgroup2 file system that holds a directory, or None."""
    return next((point for point in read_mounts() if path.is_relative_to(point)), None)


def _comm(pid: int) -> str:
    process = processes.read_process(pid)
    return process.comm if process else "?"


def _status(pid: int) -> dict[str, str]:
    """Map the field names of /proc/PID/status to values. The map is empty if the process is gone."""
    try:
        lines = (processes.PROC / str(pid) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _find_host_pid(inner: int) -> int | None:
    """Return the pid of the process that has the pid `inner` inside its pid namespace, or None."""
    for process in processes.all_processes():
        ids = _status(process.pid).get("NSpid", "").split()
        if len(ids) > 1 and ids[-1] == str(inner):
            return process.pid
    return None


def find_unit_cgroup(name: str) -> str:
    """Return the path of a systemd unit's cgroup, relative to the cgroup2 mount point."""
    unit = name if "." in name else f"{name}.service"
    return _find_cgroup_path("--unit", name, lambda part: part == unit, "systemctl status shows its state")


def find_container_cgroup(name: str) -> str:
    """Return the path of a container's cgroup, relative to the cgroup2 mount point.

    `name`: name of the container, or start of its ID.
    """
    ids = {container_id for container_id, container_name in _read_container_names() if container_name == name}
    # systemd escapes a hyphen in a name as \x2d (systemd.unit(5)).
    machines = {f"lxc.payload.{name}", f"machine-{name}.scope", f"systemd-nspawn@{name}.service"}

    def is_wanted(part: str) -> bool:
        """Return True if an element of a cgroup path belongs to the container."""
        match = CONTAINER_ID.search(part)
        if match is None:
            return part.replace("\\x2d", "-") in machines
        return match[1] in ids or (len(name) >= _ID_PREFIX_MIN and match[1].startswith(name))

    return _find_cgroup_path(
        "--container", name, is_wanted, "give its ID, or its name in docker, podman, LXC or nspawn"
    )


def _find_cgroup_path(option: str, name: str, is_wanted: Callable[[str], bool], advice: str) -> str:
    """Search all processes' cgroup paths for a path element; return the path up to this element.

    `option`, `name`: option and its value, for messages. `is_wanted`: returns True for the element. `advice`:
    next step if no process matches. Raises RunError if no process matches, or if matches have different
    paths.
    """
    paths: set[str] = set()
    pids_without_v2: set[int] = set()
    for process in processes.all_processes():
        for controllers, path in read_memberships(process.pid, processes.PROC.parent):
            parts = path.strip("/").split("/")
            depth = next((n for n, part in enumerate(parts, 1) if is_wanted(part)), None)
            if depth is not None and not controllers:
                paths.add("/".join(parts[:depth]))
            elif depth is not None:
                pids_without_v2.add(process.pid)
    if not paths and pids_without_v2:
        pids = ",".join(map(str, sorted(pids_without_v2)))
        raise RunError(f"{option} {name}: its processes are not in a cgroup v2; use --pid {pids}")
    if not paths:
        raise RunError(f"{option} {name}: no process runs in a cgroup of that name; {advice}")
    if len(paths) > 1:
        raise RunError(f"{option} {name}: ambiguous: {', '.join(sorted(paths))}; choose a path with --cgroup")
    return paths.pop()


def _read_container_names() -> Iterator[tuple[str, str]]:
    """Yield the ID and the name of each Docker or Podman container. Unreadable files are skipped."""
    for file in DOCKER.glob("*/config.v2.json"):
        config = _read_json(file)
        if isinstance(config, dict):
            yield file.parent.name, str(config.get("Name", "")).lstrip("/")
    for file in (file for storage in PODMAN for file in storage.glob("*-containers/*containers.json")):
        rows = _read_json(file)
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict):
                yield from ((str(row.get("id")), str(name)) for name in row.get("names") or ())


def _read_json(file: Path) -> object:
    """Return the JSON value in a file, or None if the file cannot be read."""
    try:
        return json.loads(files.read(file))
    except (OSError, ValueError, RecursionError):
        return None


# The second part keeps track of the processes of a watched program, and announces processes to the collector.

# Time limit in seconds of commands to the collector. Attaching waits for every CPU, which takes long on an
# emulated or overloaded machine.
ATTACH_TIMEOUT_S = 60.0
# Number of attempts to start perf.
PERF_TRIES = 5
# Interval in seconds of searches for the name of --comm, which a process may take at any moment (prctl(2)).
NAME_SEARCH_INTERVAL_S = 0.5

# Number of started threads and processes, number of exited processes, and pairs (pid, 1 if hooks saw the
# fork).
Population = tuple[int, int, list[list[int]]]


class Followed:
    """The target's processes, which may start and exit meanwhile. `pids`: result of the last find()."""

    def __init__(
        self,
        target: WatchTarget,
        names: dict[int, str],
        collector: Program,
        cleanup: ExitStack,
        perfs: dict[str, PerfStat] | None,
    ) -> None:
        """Find the processes of `target`.

        `names`: filled with the name of each process, by pid. `collector`: told about the processes. `perfs`:
        receives the target's `perf stat`; None to count no events.
        """
        self.pids = target.find_processes(set())
        self.cpu = processes.ProcessCpuTimes()
        # Reason why perf misses a process, or None.
        self.perf_misses: str | None = None
        self._target = target
        self._perfs = perfs
        self._names = names
        self._collector = collector
        self._cleanup = cleanup
        self._announced: set[int] = set()
        self._searched_s = 0.0
        self._threads = 0
        self._settled: Population | None = None
        # Limit on the cost of searching /proc for names.
        self.searches = processes.CpuBudget(1.0)

    def find(self, volume: TotalsMessage, *, search: bool = False) -> bool:
        """Tell the collector about processes whose start its hooks did not see. Note every process's name.

        `volume`: the hooks' latest counts. `search`: always search /proc. Searching takes CPU time from the
        watched program, so by default /proc is searched only when a process may have started or exited.
        Return True if /proc was searched.
        """
        if self._target.how == "all":
            self._find_all(volume)
            return False
        search = search or self._may_have_changed(volume)
        announced_before = len(self._announced)
        followed = {pid: forked for pid, forked in volume["processes"]}
        if search:
            with self.searches:
                self.pids = self._target.find_processes(self.pids, followed)
            self._searched_s = time.monotonic()
        for pid in sorted(self.pids):
            process = processes.read_process(pid)
            if process is None:
                continue
            if search and self._target.has_reused_pid(process):
                self._announced.discard(pid)
                self.cpu.forget(pid)
            self._names[pid] = process.comm
            # BPF programs saw the fork of a child, which inherited the perf events, and the exec of a --comm.
            if pid not in self._announced and not followed.get(pid, False):
                self._announce(process, fresh=self._target.how == "comm" and pid in followed)
        # A process that was announced late may already have forked.
        self._settled = _population(volume) if announced_before == len(self._announced) else None
        if self._perfs == {} and self.pids:
            self._perfs["target"] = self._start_perf()
        return search

    def _find_all(self, volume: TotalsMessage) -> None:
        """Update `pids` of a target that is all programs.

        The first call tells the collector about all processes. From then on the hooks see every start.
        """
        by_fork = {pid: bool(forked) for pid, forked in volume["processes"]}
        if self._settled is None:
            self._settled = _population(volume)
            for pid in self.pids - by_fork.keys():
                if (process := processes.read_process(pid)) is not None:
                    self._announce(process, fresh=False)
            return
        self.pids = set(by_fork)
        # Processes that the hooks selected by themselves ran before.
        ran_before = [pid for pid in self.cpu.find_new(by_fork) if not by_fork[pid]]
        self.cpu.update(ran_before, fresh=False, counted=True)

    def forget_ended(self) -> None:
        """Forget exited processes, because in an endless watch their number would grow without limit."""
        for pid in (self._names.keys() | self._announced) - self.pids:
            self._names.pop(pid, None)
            self._announced.discard(pid)
        self._target.forget(self.pids)

    def is_alive(self) -> bool:
        return any(processes.is_alive(pid) for pid in self.pids)

    def process_to_await(self) -> int | None:
        """Return a process whose exit may end the program, or None if processes may still start."""
        if self._target.gains_processes:
            return None
        # If no process is alive, return any process: waiting for its exit returns at once.
        return next((pid for pid in self.pids if processes.is_alive(pid)), min(self.pids, default=None))

    def _may_have_changed(self, volume: TotalsMessage) -> bool:
        """Return True if processes may have started or exited since the last search."""
        how = self._target.how
        name_search_due = how == "comm" and time.monotonic() - self._searched_s > NAME_SEARCH_INTERVAL_S
        name_search_due = name_search_due and self.searches.allows_use()
        return how == "cgroup" or name_search_due or _population(volume) != self._settled

    def read_new_processes(self, volume: TotalsMessage) -> None:
        """Read the CPU time of processes whose start the fork and exec hooks saw since the last reading."""
        by_exec = self._target.how == "comm"
        new = self.cpu.find_new(pid for pid, by_fork in volume["processes"] if by_fork or by_exec)
        self.cpu.update(new, fresh=True, counted=True)

    def count_threads(self, volume: TotalsMessage) -> int:
        """Return the number of threads at the start or end of a segment, whichever is larger.

        At both times, every thread may be inside a system call. Threads of processes that were not read yet
        count, too.
        """
        pids = self.pids | {pid for pid, _ in volume["processes"]}
        before, self._threads = self._threads, sum(len(processes.threads(pid)) for pid in pids)
        return max(before, self._threads)

    def has_same_processes(self, volume: TotalsMessage) -> bool:
        """Return True if no process started or exited since the last search. Threads may have started."""
        return self._settled is not None and _population(volume)[1:] == self._settled[1:]

    def stop_counting(self) -> None:
        """Note that perf no longer counts, so that later processes are not reported as missed."""
        if self._perfs is not None:
            self._perfs.clear()
        self._perfs = None

    def _start_perf(self) -> PerfStat:
        """Start perf. Retry if a thread exited before perf could attach to it."""
        for _ in range(PERF_TRIES):
            perf = PerfStat(*sorted(self.pids))
            perf.start()
            perf.wait_ready()
            if perf.failure is None or PROCESS_ENDED not in perf.failure:
                break
        return self._cleanup.enter_context(perf)

    def _announce(self, process: processes.ProcessStat, *, fresh: bool) -> None:
        """Tell the collector about a process. `fresh`: count its CPU time from its start."""
        self._announced.add(process.pid)
        self._collector.ask(f"target target {process.pid}", "target", ATTACH_TIMEOUT_S)
        self.cpu.read({process.pid}, fresh=fresh)
        if self._perfs:
            self.perf_misses = f"perf started before {process.comm}[{process.pid}] belonged to the target"


def _population(volume: TotalsMessage) -> Population:
    """Return numbers that change when one of the target's threads or processes starts, or a process exits."""
    totals = volume["totals"]
    return totals["births"], totals["exits"], sorted(volume["processes"])

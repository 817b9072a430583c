# SPDX-License-Identifier: GPL-2.0-only
"""Read processes from /proc: their parents, their CPU time and their sockets.

A process may exit while it is being read: such a process is left out, without an error. Reading /proc takes
CPU time from the watched process; CpuBudget limits this time.
"""

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from copyscope.base.spelling import closest_name
from copyscope.base.stats import gathered
from copyscope.record.measured import Machine

PROC = Path("/proc")
EXITED_STATES = (b"Z", b"X")  # states of a zombie and of a dead process: only its pid is still in use
COMM_MAX = 15  # most bytes of the name of a process: TASK_COMM_LEN - 1
PF_KTHREAD = 0x00200000
CAP_IPC_LOCK = 14
INITIAL_USER_NAMESPACE = 0xEFFFFFFD  # PROC_USER_INIT_INO, include/linux/proc_ns.h
READ_BYTES = 1 << 16
CPUCLOCK_SCHED = 2  # include/linux/posix-timers.h: the clock id of a process is computed from its pid
# Our names of protocols that the hooks do not count, by name in sockfs (sockfs_xattr_get(), net/socket.c).
UNCOUNTED_PROTOCOLS = {
    "AF_VSOCK": "vsock",
    "XDP": "AF_XDP",
    "PACKET": "AF_PACKET",
    "RAW": "raw IP",
    "RAWv6": "raw IP",
    "PING": "ICMP",
    "PINGv6": "ICMP",
    "SCTP": "SCTP",
    "SCTPv6": "SCTP",
    "SMC": "SMC",
    "SMC6": "SMC",
    "TIPC": "TIPC",
    "RDS": "RDS",
}
SOCKET_PROTOCOL_XATTR = "system.sockprotoname"
# Maximum number of file descriptors to read, over all watched processes. Reading a descriptor takes 5 us.
FD_READS_MAX = 1024
# Maximum number of file descriptors to read, over all processes of the machine, before the measurement.
MACHINE_FD_READS_MAX = 16_384


@dataclass(frozen=True)
class ProcessStat:
    """Fields of /proc/PID/stat (proc_pid_stat(5)) that copyscope uses. `kernel`: True for a kernel thread."""

    pid: int
    comm: str
    state: str
    parent: int
    kernel: bool
    start: int  # ticks from boot to its start: an earlier process with the same pid has another value

    @property
    def alive(self) -> bool:
        return self.state.encode() not in EXITED_STATES


def read_file(path: str) -> bytes:
    """Return the content of a file in /proc, several times faster than io and pathlib. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        chunks = [os.read(file, READ_BYTES)]
        while chunks[-1]:
            chunks.append(os.read(file, READ_BYTES))
    finally:
        os.close(file)
    return b"".join(chunks)


def parse_stat(text: str) -> ProcessStat:
    """Parse /proc/PID/stat. The name is in parentheses, and may itself contain parentheses and spaces."""
    pid, _, rest = text.partition(" (")
    comm, _, rest = rest.rpartition(") ")
    fields = rest.split()
    kernel = bool(int(fields[6]) & PF_KTHREAD)
    return ProcessStat(int(pid), comm, fields[0], int(fields[1]), kernel, int(fields[19]))


def read_process(pid: int) -> ProcessStat | None:
    try:
        return parse_stat(read_file(f"{PROC}/{pid}/stat").decode(errors="replace"))
    except OSError:
        return None


def user_processes() -> set[int]:
    """Return all running processes, except kernel threads, copyscope and its children."""
    ours = os.getpid()
    return {p.pid for p in all_processes() if p.alive and not p.kernel and ours not in (p.pid, p.parent)}


def is_alive(pid: int) -> bool:
    try:
        _, _, rest = read_file(f"{PROC}/{pid}/stat").rpartition(b") ")
    except OSError:
        return False
    return rest[:1] not in EXITED_STATES


def all_processes() -> list[ProcessStat]:
    """Return every process in this pid namespace, but not its threads."""
    stats = (read_process(int(entry.name)) for entry in PROC.iterdir() if entry.name.isdecimal())
    return [process for process in stats if process is not None]


def with_descendants(roots: Iterable[int]) -> set[int]:
    """Return the processes `roots` and all their living descendants.

    copyscope and its children are left out, because copyscope must not watch itself.
    """
    children = gathered((process.parent, process.pid) for process in all_processes())
    pids: set[int] = set()
    unvisited = list(roots)
    while unvisited:
        pid = unvisited.pop()
        if pid not in pids and pid != os.getpid():
            pids.add(pid)
            unvisited += children.get(pid, [])
    return {pid for pid in pids if is_alive(pid)}


def processes_named(comm: str) -> set[int]:
    """Return the running processes with this name. The kernel truncates names to 15 bytes.

    Kernel threads, copyscope, its children and its ancestors (a shell, sudo) are left out.
    """
    name = os.fsencode(comm)[:COMM_MAX].decode(errors="replace")  # truncated as in read_process()
    by_pid = {process.pid: process for process in all_processes()}
    ours, ancestor = set[int](), by_pid.get(os.getpid())
    while ancestor is not None:
        ours.add(ancestor.pid)
        ancestor = by_pid.get(ancestor.parent)
    return {
        p.pid
        for p in by_pid.values()
        if p.comm == name and p.alive and not p.kernel and p.pid not in ours and p.parent != os.getpid()
    }


def find_similar_name(comm: str) -> str | None:
    """Return the name of a running process that starts with `comm`, or the most similar one."""
    names = sorted(
        {process.comm for process in all_processes() if not process.kernel and process.alive} - {comm}
    )
    with_prefix = [name for name in names if name.lower().startswith(comm.lower())]
    shortest = min(with_prefix, key=len, default=None)
    return shortest or closest_name(comm, names)


def processes_in_cgroup(path: Path) -> set[int]:
    """Return the processes in a cgroup and its descendants, except copyscope and its children."""
    pids: set[int] = set()
    for listing in [path / "cgroup.procs", *path.glob("**/cgroup.procs")]:
        with contextlib.suppress(OSError):  # the cgroup was removed meanwhile
            pids |= {int(line) for line in listing.read_text().split()}
    by_pid = {pid: read_process(pid) for pid in pids if pid > 0}
    ours = {
        pid for pid, process in by_pid.items() if process and os.getpid() in (process.pid, process.parent)
    }
    return by_pid.keys() - ours


def cpu_ns(pid: int) -> int | None:
    """Return the CPU time of a process, including its exited threads, or None if the process is gone."""
    try:
        return time.clock_gettime_ns(((~pid) << 3) | CPUCLOCK_SCHED)
    except OSError:
        return None


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process (proc_pid_statm(5)), or 0 if the process is gone."""
    try:
        return int(read_file(f"{PROC}/{pid}/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def signal_all(number: int, find: Callable[[], Iterable[int]]) -> None:
    """Send signal `number` to the processes that `find` returns, but never to one that reuses a pid.

    A pidfd always refers to the same process (pidfd_open(2)). `find` is called again once the pidfds are
    open: a pid in both results belongs to the process that the pidfd refers to.
    """
    pidfds: dict[int, int] = {}
    try:
        for pid in find():
            with contextlib.suppress(OSError):
                pidfds[pid] = os.pidfd_open(pid)
        for pid in pidfds.keys() & set(find()):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfds[pid], number)
    finally:
        for pidfd in pidfds.values():
            os.close(pidfd)


def count_switches(pid: int) -> tuple[int, int]:
    """Return the voluntary and involuntary context switches of a process's living threads."""
    voluntary = involuntary = 0
    for thread in threads(pid):
        with contextlib.suppress(OSError):
            _, separator, rest = read_file(f"{thread}/status").rpartition(b"\nvoluntary_ctxt_switches:")
            if separator:
                slept, _, displaced = rest.split(None, 3)[:3]
                voluntary, involuntary = voluntary + int(slept), involuntary + int(displaced)
    return voluntary, involuntary


def read_memlock_limit(pid: int) -> tuple[int | None, str]:
    """Return RLIMIT_MEMLOCK of a process in bytes, and ""; or None, and why there is no number."""
    try:
        limits = (PROC / str(pid) / "limits").read_text()
        status = (PROC / str(pid) / "status").read_text(errors="replace")
        namespace = (PROC / str(pid) / "ns" / "user").stat().st_ino
    except OSError:
        return None, "the process had ended before its limit was read"
    # mm_account_pinned_pages() checks for the capability in the initial user namespace.
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    if namespace == INITIAL_USER_NAMESPACE and effective and int(effective[1], 16) >> CAP_IPC_LOCK & 1:
        return None, "the process has CAP_IPC_LOCK, so the limit does not apply"
    match = re.search(r"^Max locked memory\s+(\d+)", limits, re.MULTILINE)
    return (int(match[1]), "") if match else (None, "unlimited")


def set_memlock_limit(machine: Machine, pids: Collection[int]) -> None:
    """Replace our memlock limit in a `machine` section with the lowest limit of the watched processes."""
    if pids:
        limits = [read_memlock_limit(pid) for pid in sorted(pids)]
        memlock_bytes, why = min(limits, key=lambda limit: (limit[0] is None, limit[0] or 0))
        machine.limits["memlock_bytes"] = memlock_bytes
        if memlock_bytes is None:
            machine.reasons = {**(machine.reasons or {}), "limits.memlock_bytes": why}


def threads(pid: int) -> list[str]:
    """Return the /proc directory of each thread of a process. The list is empty if the process is gone."""
    listing = f"{PROC}/{pid}/task"
    try:
        return [f"{listing}/{thread}" for thread in os.listdir(listing)]  # noqa: PTH208 (several times as fast)
    except OSError:
        return []


@dataclass(frozen=True)
class Use:
    """CPU time in ns, and numbers of voluntary (the task waits) and involuntary context switches."""

    cpu_ns: int = 0
    voluntary: int = 0
    involuntary: int = 0

    def __add__(self, more: "Use") -> "Use":
        return Use(
            self.cpu_ns + more.cpu_ns, self.voluntary + more.voluntary, self.involuntary + more.involuntary
        )

    def __sub__(self, less: "Use") -> "Use":
        return self + Use(-less.cpu_ns, -less.voluntary, -less.involuntary)

    @property
    def switches(self) -> int:
        return self.voluntary + self.involuntary


class ProcessCpuTimes:
    """Total CPU time and context switches of a changing set of processes. The total never decreases.

    After a process exits, its last reading counts until the kernel reports the exact CPU time.
    """

    def __init__(self) -> None:
        """Start with no processes."""
        # First and last reading of each process, by pid.
        self._began: dict[int, Use] = {}
        self._last: dict[int, Use] = {}
        # Use of exited processes, as read. The CPU time of exits that the kernel reports is not included.
        self._ended = Use()
        # False to read CPU times only: reading the switches of each thread takes much longer.
        self.counts_switches = True
        # Processes for which the kernel reports the exit, CPU time of all reported exits, and the part of
        # this time before the watch.
        self._reported_pids: set[int] = set()
        self._reported_ended_ns = self._before_watch_ns = 0

    def read(self, pids: Iterable[int], fresh: bool) -> Use:
        """Read the processes; return the total use since the first call.

        `fresh`: count the use of new processes from their start, not from now.
        """
        self.update(pids, fresh=fresh, counted=True)
        return self.used()

    def used(self) -> Use:
        """Return the total as of the latest readings."""
        total = self._ended + Use(self._reported_ended_ns - self._before_watch_ns)
        if self.counts_switches:
            return sum(map(self._used, self._last), total)
        # Adding integers takes a tenth of the time, and a node has many processes.
        read_ns = sum(last.cpu_ns for last in self._last.values())
        return total + Use(read_ns - sum(began.cpu_ns for began in self._began.values()))

    def set_reported(self, alive: Collection[int], ended_ns: int) -> None:
        """Store the kernel's report: which processes are alive, and the CPU time of all exited processes."""
        for pid in self._reported_pids.difference(alive):
            self.forget(pid)
        self._reported_pids.update(alive)
        self._reported_ended_ns = ended_ns

    def find_new(self, pids: Iterable[int]) -> set[int]:
        """Return the processes that were never read."""
        return set(pids) - self._last.keys()

    def forget(self, pid: int) -> None:
        """Drop a process that has exited, and whose pid may have been reused. Its use stays in the total."""
        if pid in self._last:
            used = self._used(pid)
            if pid in self._reported_pids:
                self._before_watch_ns += self._began[pid].cpu_ns
                used = replace(used, cpu_ns=0)
            self._ended += used
            del self._last[pid], self._began[pid]
        self._reported_pids.discard(pid)

    def _used(self, pid: int) -> Use:
        """Return the use of a process since its first reading."""
        used = self._last[pid] - self._began[pid]
        # The switches of exited threads are no longer in /proc, so the difference may be negative.
        return Use(used.cpu_ns, max(0, used.voluntary), max(0, used.involuntary))

    def update(self, pids: Iterable[int], *, fresh: bool, counted: bool) -> None:
        """Read the CPU time of each process with a system call.

        `counted`: also read each process's context switches from /proc.
        `fresh`: count the use of new processes from their start, not from now.
        """
        counted = counted and self.counts_switches
        for pid in pids:
            used_ns, last = cpu_ns(pid), self._last.get(pid)
            if used_ns is None or (last is not None and used_ns == last.cpu_ns and not counted):
                continue
            if last is not None and used_ns < last.cpu_ns:
                self.forget(pid)
            last = self._last.get(pid, Use())
            now = Use(used_ns, *(count_switches(pid) if counted else (last.voluntary, last.involuntary)))
            self._began.setdefault(pid, Use() if fresh else now)
            self._last[pid] = now


class CpuBudget:
    """Limit on how much of one CPU a repeated activity of copyscope may use.

    The activity takes CPU time from the watched process, and runs inside `with budget:`. Afterwards,
    allows_use() is False until enough time has passed that the average cost is within the limit. The first
    `free_s` seconds of CPU time do not count, for programs that end soon.
    """

    def __init__(self, share: float, free_s: float = 0.0) -> None:
        self._share, self._free_s = share, free_s
        self._next_s = self._began_s = self._began_cpu_s = 0.0

    def allows_use(self) -> bool:
        return time.monotonic() >= self._next_s

    def __enter__(self) -> None:
        self._began_s, self._began_cpu_s = time.monotonic(), time.process_time()

    def __exit__(self, *_: object) -> None:
        used_s = time.process_time() - self._began_cpu_s
        self._next_s = self._began_s + max(0.0, used_s - self._free_s) / self._share
        self._free_s = max(0.0, self._free_s - used_s)


def find_sockets(pids: Iterable[int], reads_left: int = FD_READS_MAX) -> dict[int, int]:
    """Map the inode of each open socket to the pid of its process.

    `reads_left`: maximum number of file descriptors to read.
    """
    pid_by_inode: dict[int, int] = {}
    for pid in pids:
        # The process may exit meanwhile.
        with contextlib.suppress(OSError):
            for name in os.listdir(PROC / str(pid) / "fd")[: max(0, reads_left)]:  # noqa: PTH208
                reads_left -= 1
                with contextlib.suppress(OSError):
                    link = str((PROC / str(pid) / "fd" / name).readlink())
                    if link.startswith("socket:["):
                        pid_by_inode[int(link[8:-1])] = pid
    return pid_by_inode


def find_uncounted_sockets(pids: Iterable[int]) -> set[str]:
    """Return the protocols of the processes' open sockets whose traffic copyscope does not count."""
    protocols: set[str] = set()
    reads_left = FD_READS_MAX
    for pid in sorted(pids):
        # The process may exit meanwhile.
        with contextlib.suppress(OSError):
            for name in os.listdir(PROC / str(pid) / "fd")[:reads_left]:  # noqa: PTH208
                reads_left -= 1
                with contextlib.suppress(OSError):
                    protocol = os.getxattr(PROC / str(pid) / "fd" / name, SOCKET_PROTOCOL_XATTR).rstrip(b"\0")
                    protocols.add(UNCOUNTED_PROTOCOLS.get(protocol.decode("ascii", "replace"), ""))
    return protocols - {""}

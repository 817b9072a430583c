"""What /proc says about processes: who there is, who made whom, what CPU time and which sockets they used.

Everything here may race with the end of a process: one that is gone has no row, and is no error. To look
takes CPU time from whoever is watched (Seldom).
"""

import contextlib
import difflib
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from copyscope.grouping import gathered
from copyscope.record.session_result import Record

PROC = Path("/proc")
ENDED = (b"Z", b"X")  # the states of one that is gone but for its number
COMM_MAX = 15  # TASK_COMM_LEN - 1
PF_KTHREAD = 0x00200000
CAP_IPC_LOCK = 14
INITIAL_USER_NAMESPACE = 0xEFFFFFFD  # PROC_USER_INIT_INO, include/linux/proc_ns.h
FILE_BYTES = 1 << 16
CPUCLOCK_SCHED = 2  # include/linux/posix-timers.h: the clock id of a process is made of its pid
# Of two names that may be meant to be one (difflib).
ALIKE_LEAST = 0.7
# What sockfs calls the protocol (sockfs_xattr_get(), net/socket.c) -> what a user calls it.
UNCOUNTED = {
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
SOCKET_KIND = "system.sockprotoname"
# Of all processes together: to look at a file takes 5 us.
FILES_MAX = 1024
# Of all processes of the machine, before anything is measured.
EVERY_FILE_MAX = 16_384


@dataclass(frozen=True)
class Process:
    """One line of /proc/PID/stat (proc_pid_stat(5)), as far as it is needed."""

    pid: int
    comm: str
    state: str
    parent: int
    kernel: bool
    start: int  # ticks since boot: what tells it from one that had its number before

    @property
    def alive(self) -> bool:
        return self.state.encode() not in ENDED


def read_file(path: str) -> bytes:
    """A file of /proc, whole. Raises OSError. Reading through io and pathlib takes several times as long."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        chunks = [os.read(file, FILE_BYTES)]
        while chunks[-1]:
            chunks.append(os.read(file, FILE_BYTES))
    finally:
        os.close(file)
    return b"".join(chunks)


def parse_stat(text: str) -> Process:
    """The name stands in parentheses and may hold anything, parentheses and blanks too."""
    pid, _, rest = text.partition(" (")
    comm, _, rest = rest.rpartition(") ")
    fields = rest.split()
    kernel = bool(int(fields[6]) & PF_KTHREAD)
    return Process(int(pid), comm, fields[0], int(fields[1]), kernel, int(fields[19]))


def read_process(pid: int) -> Process | None:
    try:
        return parse_stat(read_file(f"{PROC}/{pid}/stat").decode(errors="replace"))
    except OSError:
        return None


def is_alive(pid: int) -> bool:
    try:
        _, _, rest = read_file(f"{PROC}/{pid}/stat").rpartition(b") ")
    except OSError:
        return False
    return rest[:1] not in ENDED


def all_processes() -> list[Process]:
    """Every process of this pid namespace, threads left out."""
    found = (read_process(int(entry.name)) for entry in PROC.iterdir() if entry.name.isdecimal())
    return [process for process in found if process is not None]


def with_descendants(roots: Iterable[int]) -> set[int]:
    """The processes and everything that they, or their children, have started and that still lives.

    But never this one, nor through it its helpers: copyscope does not watch itself.
    """
    children = gathered((process.parent, process.pid) for process in all_processes())
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found and pid != os.getpid():
            found.add(pid)
            waiting += children.get(pid, [])
    return {pid for pid in found if is_alive(pid)}


def named(comm: str) -> set[int]:
    """The processes with this name, which the kernel cuts to 15 bytes; not we, nor our helpers.

    Nor who has started us: a shell, sudo, or the Python of a fleet only waits for the report.
    """
    wanted = os.fsencode(comm)[:COMM_MAX].decode(errors="replace")  # as read_process() has it
    every = {process.pid: process for process in all_processes()}
    ours, here = set[int](), every.get(os.getpid())
    while here is not None:
        ours.add(here.pid)
        here = every.get(here.parent)
    return {
        p.pid
        for p in every.values()
        if p.comm == wanted and p.alive and not p.kernel and p.pid not in ours and p.parent != os.getpid()
    }


def alike(comm: str) -> str | None:
    """The name of a process that runs and that may be meant: one that begins so, else the most alike."""
    names = sorted({one.comm for one in all_processes() if not one.kernel and one.alive} - {comm})
    beginning = [name for name in names if name.lower().startswith(comm.lower())]
    found = min(beginning, key=len, default=None)
    return found or next(iter(difflib.get_close_matches(comm, names, 1, ALIKE_LEAST)), None)


def in_cgroup(path: Path) -> set[int]:
    """The processes of a cgroup and of those below it; not we, nor our helpers."""
    found: set[int] = set()
    for listing in [path / "cgroup.procs", *path.glob("**/cgroup.procs")]:
        with contextlib.suppress(OSError):  # it was removed meanwhile
            found |= {int(line) for line in listing.read_text().split()}
    known = {pid: read_process(pid) for pid in found if pid > 0}
    ours = {pid for pid, one in known.items() if one and os.getpid() in (one.pid, one.parent)}
    return known.keys() - ours


def cpu_ns(pid: int) -> int | None:
    """CPU time of all threads, also of those that have ended; None when the process is gone."""
    try:
        return time.clock_gettime_ns(((~pid) << 3) | CPUCLOCK_SCHED)
    except OSError:
        return None


def resident_bytes(pid: int) -> int:
    """Its memory; 0 of one that is gone (proc_pid_statm(5))."""
    try:
        return int(read_file(f"{PROC}/{pid}/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def signal_all(number: int, find: Callable[[], Iterable[int]]) -> None:
    """Send it to those that are found, and to nobody who has got the number of one that ended meanwhile.

    Who is held (pidfd_open(2)) when he is found a second time is the one who was meant, or gone.
    """
    held: dict[int, int] = {}
    try:
        for pid in find():
            with contextlib.suppress(OSError):
                held[pid] = os.pidfd_open(pid)
        for pid in held.keys() & set(find()):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(held[pid], number)
    finally:
        for life in held.values():
            os.close(life)


def switches(pid: int) -> tuple[int, int]:
    """How often its living threads slept, and how often others took their CPU (proc_pid_status(5))."""
    voluntary = involuntary = 0
    for thread in threads(pid):
        with contextlib.suppress(OSError):
            _, found, rest = read_file(f"{thread}/status").rpartition(b"\nvoluntary_ctxt_switches:")
            if found:
                slept, _, displaced = rest.split(None, 3)[:3]
                voluntary, involuntary = voluntary + int(slept), involuntary + int(displaced)
    return voluntary, involuntary


def memlock(pid: int) -> tuple[int | None, str]:
    """(RLIMIT_MEMLOCK of a process, or None when it holds nothing back; then why)."""
    try:
        limits = (PROC / str(pid) / "limits").read_text()
        status = (PROC / str(pid) / "status").read_text(errors="replace")
        namespace = (PROC / str(pid) / "ns" / "user").stat().st_ino
    except OSError:
        return None, "the process had ended before its limit was read"
    # mm_account_pinned_pages() asks for the capability in the machine's own user namespace.
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    if namespace == INITIAL_USER_NAMESPACE and effective and int(effective[1], 16) >> CAP_IPC_LOCK & 1:
        return None, "it has CAP_IPC_LOCK: the limit does not apply to it"
    match = re.search(r"^Max locked memory\s+(\d+)", limits, re.MULTILINE)
    return (int(match[1]), "") if match else (None, "unlimited")


def put_memlock(machine: Record, pids: Collection[int]) -> None:
    """The memlock limit of a machine section is the program's, not ours: of several processes the least."""
    if pids:
        found = [memlock(pid) for pid in sorted(pids)]
        memlock_bytes, why = min(found, key=lambda one: (one[0] is None, one[0] or 0))
        machine["limits"]["memlock_bytes"] = memlock_bytes
        if memlock_bytes is None:
            machine["reasons"]["limits.memlock_bytes"] = why


def threads(pid: int) -> list[str]:
    """The directory of each in /proc; none of a process that is gone."""
    listing = f"{PROC}/{pid}/task"
    try:
        return [f"{listing}/{thread}" for thread in os.listdir(listing)]  # noqa: PTH208 (it is several times as fast)
    except OSError:
        return []


@dataclass(frozen=True)
class Use:
    """CPU time, and how often threads left the CPU: by themselves, or for another task."""

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


class CpuTimes:
    """What a changing set of processes has used, as one total that only grows.

    Of a process that ends its last reading counts until the kernel has told what it had used at its end.
    """

    def __init__(self) -> None:
        self._began: dict[int, Use] = {}
        self._last: dict[int, Use] = {}
        # Of processes whose end nobody told, and the switches of all others that are gone.
        self._ended = Use()
        # Whose end the kernel tells; what those that are gone have used, and had before they were watched.
        self._listed: set[int] = set()
        self._told_ns = self._before_ns = 0

    def read(self, pids: Iterable[int], fresh: bool) -> Use:
        """Since the first call. `fresh`: a new process counts from its birth."""
        self.glance(pids, fresh=fresh, counted=True)
        return self.used()

    def used(self) -> Use:
        """By the last looks."""
        told = Use(self._told_ns - self._before_ns)
        return sum(map(self._used, self._last), self._ended + told)

    def tell(self, alive: Collection[int], ended_ns: int) -> None:
        """By the kernel: these are left, and all that were and are gone have used so much."""
        for pid in self._listed.difference(alive):
            self.forget(pid)
        self._listed.update(alive)
        self._told_ns = ended_ns

    def new_among(self, pids: Iterable[int]) -> set[int]:
        """Those that nobody has looked at yet."""
        return set(pids) - self._last.keys()

    def forget(self, pid: int) -> None:
        """It has ended, or its number is another's now: what it used stays in the total."""
        if pid in self._last:
            used = self._used(pid)
            if pid in self._listed:
                self._before_ns += self._began[pid].cpu_ns
                used = replace(used, cpu_ns=0)
            self._ended += used
            del self._last[pid], self._began[pid]
        self._listed.discard(pid)

    def _used(self, pid: int) -> Use:
        used = self._last[pid] - self._began[pid]
        # Threads that ended have taken their counts with them.
        return Use(used.cpu_ns, max(0, used.voluntary), max(0, used.involuntary))

    def glance(self, pids: Iterable[int], *, fresh: bool, counted: bool) -> None:
        """The CPU times, by one cheap call each; `counted`: the switches too, for which /proc is read."""
        for pid in pids:
            spent = cpu_ns(pid)
            if spent is None:
                continue
            if spent < self._last.get(pid, Use()).cpu_ns:
                self.forget(pid)
            last = self._last.get(pid, Use())
            now = Use(spent, *(switches(pid) if counted else (last.voluntary, last.involuntary)))
            self._began.setdefault(pid, Use() if fresh else now)
            self._last[pid] = now


class Seldom:
    """Something that takes CPU time from the watched program, so seldom that it is this share of one CPU."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._next_s = self._began_s = self._began_cpu_s = 0.0

    def are_cheap(self) -> bool:
        return time.monotonic() >= self._next_s

    def __enter__(self) -> None:
        self._began_s, self._began_cpu_s = time.monotonic(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self._next_s = self._began_s + (time.process_time() - self._began_cpu_s) / self._share


def sockets(pids: Iterable[int], left: int = FILES_MAX) -> dict[int, int]:
    """Inode -> process of the sockets that these have open, as far as so many files show them."""
    found: dict[int, int] = {}
    for pid in pids:
        # One that ended meanwhile.
        with contextlib.suppress(OSError):
            for name in os.listdir(PROC / str(pid) / "fd")[: max(0, left)]:  # noqa: PTH208
                left -= 1
                with contextlib.suppress(OSError):
                    link = str((PROC / str(pid) / "fd" / name).readlink())
                    if link.startswith("socket:["):
                        found[int(link[8:-1])] = pid
    return found


def uncounted(pids: Iterable[int]) -> set[str]:
    """The kinds of sockets, beyond those that are counted, that these processes have open."""
    found: set[str] = set()
    left = FILES_MAX
    for pid in sorted(pids):
        # One that ended meanwhile.
        with contextlib.suppress(OSError):
            for name in os.listdir(PROC / str(pid) / "fd")[:left]:  # noqa: PTH208
                left -= 1
                with contextlib.suppress(OSError):
                    protocol = os.getxattr(PROC / str(pid) / "fd" / name, SOCKET_KIND).rstrip(b"\0")
                    found.add(UNCOUNTED.get(protocol.decode("ascii", "replace"), ""))
    return found - {""}

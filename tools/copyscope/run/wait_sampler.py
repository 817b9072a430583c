# SPDX-License-Identifier: GPL-2.0-only
"""Sample where a watched program's threads wait: in which system call, and in which kernel function.

A thread of copyscope reads /proc/PID/task/TID/syscall and wchan at random moments, about twenty times a
second. It also reads all TCP connections, to find those that hold back the end of a message.
"""

import ctypes
import os
import random
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from copyscope.record.waits import SENDING_CALLS, WaitRow, Waits
from copyscope.run import processes
from copyscope.run.connections import Snapshots, TcpConnection
from copyscope.run.wait_calls import WaitCall, find_call

# Mean time between two samples in seconds, if the budget of CPU time allows it.
INTERVAL_S = 0.05
# Share of one CPU for reading threads, and for reading connections.
CPU_SHARE = 0.005
# Most threads in one sample, chosen at random.
THREADS_MAX = 32
# Time in seconds between two searches for the sockets of the program.
SOCKETS_INTERVAL_S = 1.0
# A thread counts if its context switches are at least this part of those of the most active thread.
ACTIVE_PART = 0.05
# Most sockets of which the option SO_SNDBUF is read.
SOCKETS_MAX = 16
# asm-generic/unistd.h and asm-generic/socket.h; the option exists from Linux 5.14 on.
SYS_PIDFD_GETFD = 438
SO_BUF_LOCK, SOCK_SNDBUF_LOCK = 72, 1
READ_BYTES = re.compile(rb"^read_bytes: (\d+)$", re.MULTILINE)
LIBC = ctypes.CDLL(None, use_errno=True)

State = tuple[str | None, str | None, str | None]


@dataclass
class ThreadSamples:
    """Number of samples of one thread in each state, and its first and last context switch counts."""

    first_switches: int
    last_switches: int
    states: Counter[State] = field(default_factory=Counter)

    @property
    def switches(self) -> int:
        """Number of times that the thread got a CPU between its first and its last sample."""
        return self.last_switches - self.first_switches

    @property
    def never_waits(self) -> bool:
        return self.states.keys() == {(None, None, None)}


class WaitSampler:
    """Sampler of a program's threads, active from start() to stop()."""

    def __init__(self, pids: Callable[[], Collection[int]], namespace: Callable[[], Path]) -> None:
        """Set up. `pids` returns the program's processes, `namespace` the file of its network namespace."""
        self._pids, self._namespace = pids, namespace
        self._threads: dict[str, ThreadSamples] = {}
        self._reason: str | None = "the watch ended before the first sample"
        # First and last count of bytes that storage delivered, by pid.
        self._disk_bytes: dict[int, tuple[int, int]] = {}
        self._held = self._readings = 0
        self._bytes_sent: dict[int, int] = {}
        self._inodes: Collection[int] = ()
        self._next_search_s = 0.0
        # Fixed size of the send buffer of a socket in bytes, or None, by (pid, file descriptor).
        self._buffers: dict[tuple[int, int], int | None] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        threads, connections = processes.CpuBudget(CPU_SHARE), processes.CpuBudget(CPU_SHARE)
        snapshots = Snapshots()
        while not self._ended.wait(random.uniform(0.5, 1.5) * INTERVAL_S):
            pids = tuple(self._pids())
            if threads.allows_use():
                with threads:
                    self._sample_threads(pids)
            if connections.allows_use():
                with connections:
                    self._read_connections(snapshots, pids)
        snapshots.close()

    def _sample_threads(self, pids: Collection[int]) -> None:
        """Sample each thread, and note how many bytes each process has read from storage."""
        folders = [(pid, folder) for pid in pids for folder in processes.threads(pid)]
        for pid, folder in random.sample(folders, min(THREADS_MAX, len(folders))):
            try:
                self._sample(pid, folder)
            except PermissionError:
                self._reason = "the kernel hides the system calls of the program (ptrace access denied)"
            except (OSError, ValueError, IndexError):
                continue  # the thread has exited, or the kernel lacks the file
        for pid in pids:
            delivered = _disk_bytes(pid)
            if delivered is not None:
                self._disk_bytes[pid] = (self._disk_bytes.get(pid, (delivered, 0))[0], delivered)

    def _sample(self, pid: int, folder: str) -> None:
        """Take one sample of a thread. Raises OSError, ValueError or IndexError if the thread has exited."""
        function = processes.read_file(f"{folder}/wchan").decode()
        call = find_call(processes.read_file(f"{folder}/syscall").decode())
        switches = int(processes.read_file(f"{folder}/schedstat").split()[2])
        thread = self._threads.setdefault(folder, ThreadSamples(switches, switches))
        thread.last_switches = switches
        kind = None if call is None else _kind_of_file(pid, call)
        thread.states[_state(call, kind, function)] += 1
        if call is not None and kind == "socket" and call.name in SENDING_CALLS:
            self._note_buffer(pid, call)

    def _note_buffer(self, pid: int, call: WaitCall) -> None:
        """Note the send buffer size of the socket on which a thread waits, once per socket."""
        key = (pid, call.descriptor or 0)
        if key not in self._buffers and len(self._buffers) < SOCKETS_MAX:
            self._buffers[key] = _fixed_buffer_bytes(*key)

    def _read_connections(self, snapshots: Snapshots, pids: Collection[int]) -> None:
        """Count the connections in use, and those among them that hold back the end of a message."""
        now_s = time.monotonic()
        if now_s >= self._next_search_s:
            self._inodes = processes.find_sockets(pids).keys()
            self._next_search_s = now_s + SOCKETS_INTERVAL_S
        connections = snapshots.take(self._namespace()) or {}
        for inode in self._inodes:
            connection = connections.get(inode)
            if connection is None or not connection.established:
                continue
            before = self._bytes_sent.get(inode)
            self._bytes_sent[inode] = connection.bytes_sent
            if connection.unsent_bytes or before not in (None, connection.bytes_sent):
                self._readings += 1
                self._held += is_held(connection)

    def waits(self) -> Waits:
        """Return all samples of threads that ran, and the results of reading the connections."""
        threads = self._threads.values()
        limit = max(1.0, ACTIVE_PART * max((thread.switches for thread in threads), default=0))
        active = [thread for thread in threads if thread.switches >= limit or thread.never_waits]
        states: Counter[State] = sum((thread.states for thread in active), Counter())
        reason = "no thread ran between two samples" if self._threads else self._reason
        fixed = [size for size in self._buffers.values() if size is not None]
        return Waits(
            reason=None if states else reason,
            samples=states.total() or None,
            threads=len(active),
            rows=[WaitRow(*state, count) for state, count in states.most_common()],
            disk_bytes=sum(last - first for first, last in self._disk_bytes.values())
            if self._disk_bytes
            else None,
            connection_samples=self._readings,
            held_samples=self._held,
            fixed_buffer_bytes=min(fixed, default=None),
        )


def is_held(connection: TcpConnection) -> bool:
    """Return True if TCP holds back less than a full segment, although both windows have room for it.

    Nagle's algorithm and TCP_CORK hold back a small segment while an earlier segment is unacknowledged.
    """
    is_small = 0 < connection.unsent_bytes < connection.mss_bytes
    return is_small and 0 < connection.unacked_segments < connection.window_segments


def _state(call: WaitCall | None, kind: str | None, function: str) -> State:
    """Return a sample's system call, kind of file and kernel function; all None if the thread is runnable."""
    if call is None:
        return None, None, None
    return call.name, kind, function if function not in ("", "0") else None


def _kind_of_file(pid: int, call: WaitCall) -> str | None:
    """Return the kind of file that a call uses: `socket`, `file` or `other`; None if it uses no file."""
    if call.descriptor is None:
        return None
    target = str((processes.PROC / str(pid) / "fd" / str(call.descriptor)).readlink())
    if target.startswith("socket:"):
        return "socket"
    return "file" if target.startswith("/") and not target.startswith("/dev/") else "other"


def _disk_bytes(pid: int) -> int | None:
    """Return the number of bytes that a process has read from storage; None if unknown."""
    try:
        match = READ_BYTES.search(processes.read_file(f"{processes.PROC}/{pid}/io"))
    except OSError:
        return None
    return None if match is None else int(match[1])


def _fixed_buffer_bytes(pid: int, descriptor: int) -> int | None:
    """Return a socket's send buffer size in bytes if the program fixed it with SO_SNDBUF, else None."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        copied = LIBC.syscall(SYS_PIDFD_GETFD, pidfd, descriptor, 0)
    finally:
        os.close(pidfd)
    if copied < 0:
        return None
    try:
        with socket.socket(fileno=copied) as copy:
            if not copy.getsockopt(socket.SOL_SOCKET, SO_BUF_LOCK) & SOCK_SNDBUF_LOCK:
                return None
            return copy.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    except OSError:
        return None

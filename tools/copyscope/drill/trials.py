"""The drill: send a buffer, rewrite it, read what arrives; at once, and when all of it has arrived."""

import errno
import fcntl
import os
import socket
import struct
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from copyscope.drill import copiers
from copyscope.drill.connections import QUEUED_BYTES, Missing, Pair, open_path
from copyscope.drill.copiers import Copier
from copyscope.drill.kernel_stacks import Stacks, Unreadable
from copyscope.drill.ways import BUFFER_BYTES, WAYS, Notified, Way
from copyscope.taxonomy.taxonomy import Taxonomy
from copyscope.topology import TopologyError

Result = Literal["by reference", "in part by reference", "copied before return", "late copy", "refused"]
PATHS = ("lo", "veth", "unix", "tls")
WARMING, TRIALS = 2, 5
# What lies in the buffer when it is sent, and what it is rewritten with.
SENT, REWRITTEN = b"s", b"r"
QUEUED = b"q" * QUEUED_BYTES
ARRIVED_WITHIN_S = 0.3
NOTHING_COPIED, NOBODY_SEEN = "nothing was copied", "no function of the kernel was seen copying it"
ENOTSUPP = 524  # include/linux/errno.h: no error of programs, but 5.10 has it for EOPNOTSUPP


@dataclass(frozen=True)
class Row:
    """What came of one way on one path."""

    way: str
    path: str
    result: Result
    bytes: int
    changed_at_once_bytes: int | None  # rewritten when the call had returned and nothing of it had left
    changed_bytes: int | None  # rewritten when all had arrived at the receiver's socket
    arrived_after_us: int | None
    notified: Notified
    reason: str | None
    copied_by: Copier | None = None
    copied_by_reason: str | None = None  # why that is not known


FindCopier = Callable[[Callable[[], object], str], tuple[Copier | None, str | None]]


def run_all(directory: Path, over: Sequence[str]) -> list[Row]:
    """All ways on these paths (connections.py). Those over veth and network cards need root.

    Raises TopologyError of a path that not every run tries.
    """
    for way in WAYS:
        way.directory = directory
    rows = []
    with who_copies() as find:
        for path in over:
            try:
                with open_path(path) as (name, connect):
                    rows += [try_way(way, name, connect, find) for way in WAYS]
            except (TopologyError, Missing) as error:
                if path not in PATHS and isinstance(error, TopologyError):  # it was asked for by name
                    raise
                name = path.partition(":")[0]
                rows += [_refused(way.name, name, str(error).removeprefix("topology: ")) for way in WAYS]
    return rows


@contextmanager
def who_copies() -> Iterator[FindCopier]:
    """What finds out which function copied, or says why that cannot be known."""
    taxonomy = Taxonomy.load()
    try:
        stacks = Stacks(copiers.hookable(taxonomy), lambda name: taxonomy.find(name)[1] is not None)
    except Unreadable as unreadable:
        reason = str(unreadable)
        yield lambda _, result: (None, reason if result in copiers.COPYING else NOTHING_COPIED)
        return

    def find(repeat: Callable[[], object], result: str) -> tuple[Copier | None, str | None]:
        copier = copiers.find(stacks, repeat, result, taxonomy)
        nobody = NOBODY_SEEN if result in copiers.COPYING else NOTHING_COPIED
        return copier, None if copier else nobody

    with stacks:
        yield find


def try_way(way: type[Way], path: str, connect: Callable[[], Pair], find: FindCopier) -> Row:
    """One way on one path, a few times: of what it may do, the worst is told."""
    sender, receiver = connect()
    with sender, receiver:
        receiver.settimeout(5)
        try:
            with way(sender) as made:
                # A connection that has just begun sends few packets at a time.
                for _ in range(WARMING):
                    _trial(made, receiver, wait=True)
                at_once = [_trial(made, receiver, wait=False) for _ in range(TRIALS)]
                arrived = [_trial(made, receiver, wait=True) for _ in range(TRIALS)]
                changed_at_once = max(trial.changed for trial in at_once)
                changed = max(trial.changed for trial in arrived)
                result = judge(changed_at_once, changed)
                copied_by, copied_by_reason = find(lambda: _send_and_receive(made, receiver), result)
        except OSError as error:
            return _refused(way.name, path, _why(error))
    return Row(
        way=way.name,
        path=path,
        result=result,
        bytes=BUFFER_BYTES,
        changed_at_once_bytes=changed_at_once,
        changed_bytes=changed,
        arrived_after_us=max(trial.arrived_us for trial in arrived),
        notified=next(
            (trial.notified for trial in arrived if trial.notified != "copied"), arrived[0].notified
        ),
        reason=None,
        copied_by=copied_by,
        copied_by_reason=copied_by_reason,
    )


def judge(changed_at_once: int, changed: int) -> Result:
    """From the bytes that arrived changed. What changes after it has arrived is nobody's copy."""
    if changed == BUFFER_BYTES:
        return "by reference"
    if changed:
        return "in part by reference"
    return "late copy" if changed_at_once else "copied before return"


@dataclass(frozen=True)
class _Trial:
    changed: int
    arrived_us: int
    notified: Notified


def _trial(way: Way, receiver: socket.socket, *, wait: bool) -> _Trial:
    """Rewrite at once, or `wait` until all has arrived.

    At once: behind more than the receiver has room for. While there is room lo and veth deliver within the
    call, and what it refers to is copied before it returns; what waits in the socket is not.
    """
    ahead = b"" if wait or way.sock.family == socket.AF_UNIX else QUEUED
    way.sock.sendall(ahead)
    way.rewrite(SENT)
    way.send()
    began = time.monotonic()
    if wait:
        _wait_until_arrived(way.sock, receiver)
    arrived_us = round((time.monotonic() - began) * 1e6)
    way.rewrite(REWRITTEN)
    got = _receive(receiver, len(ahead) + BUFFER_BYTES)
    return _Trial(got.count(REWRITTEN, len(ahead)), arrived_us, way.notified())


def _send_and_receive(way: Way, receiver: socket.socket) -> None:
    """As a program does that rewrites nothing."""
    way.send()
    _receive(receiver, BUFFER_BYTES)
    way.notified()


def _receive(receiver: socket.socket, count: int) -> bytearray:
    got = bytearray()
    while len(got) < count:
        part = receiver.recv(count - len(got))
        if not part:
            raise OSError(errno.ECONNRESET, "the connection ended")
        got += part
    return got


def _wait_until_arrived(sender: socket.socket, receiver: socket.socket) -> None:
    """Until all waits at the receiver, or is acknowledged: that can be 40 ms later, but kTLS takes it away.

    A local socket hands over within the call.
    """
    until = time.monotonic() + ARRIVED_WITHIN_S
    while sender.family != socket.AF_UNIX and time.monotonic() < until:
        if _queued(receiver, termios.FIONREAD) >= BUFFER_BYTES or not _queued(sender, termios.TIOCOUTQ):
            return


def _queued(sock: socket.socket, request: int) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(sock, request, b"\0" * 4))
    return int(count)


def _why(error: OSError) -> str:
    if error.errno == ENOTSUPP:
        return _why(OSError(errno.EOPNOTSUPP, ""))
    if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOPROTOOPT):
        return f"the kernel does not do that on this socket ({os.strerror(error.errno)})"
    return error.strerror or str(error)


def _refused(way: str, path: str, reason: str) -> Row:
    return Row(way, path, "refused", BUFFER_BYTES, None, None, None, None, reason, None, NOTHING_COPIED)


def changes(rows: list[Row], expected: Mapping[tuple[str, str], str]) -> list[str]:
    """What came out otherwise than it was expected, one line each."""
    found = {(row.way, row.path): row for row in rows}
    lines = []
    for (way, path), then in expected.items():
        row = found.get((way, path))
        now = "not tried" if row is None else row.result + (f" ({row.reason})" if row.reason else "")
        if row is None or row.result != then:
            lines.append(f"{way} over {path}: was {then}, is {now}")
    return lines

# SPDX-License-Identifier: GPL-2.0-only
"""Why the threads of a watched program wait: each cause with its share of the time and a remedy. Pure.

Samples of the threads show the call and the kernel function of each wait. TCP's own times, readings of the
connections and the counts of notifications divide the waits of one call among several causes.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from copyscope.base.spelling import counted, format_bytes
from copyscope.record.measured import Measured
from copyscope.record.segments import wall_ns
from copyscope.record.waits import RECEIVING_CALLS, SENDING_CALLS, WaitRow, Waits
from copyscope.record.watched import added, volume

# Calls that wait for data or for room, on any of several sockets.
POLLING = (
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "io_uring_enter",
)
SLEEPING = ("nanosleep", "clock_nanosleep")
# Kernel functions in which a thread waits for a page of a file or for a block device.
DISK = re.compile(r"folio|wait_on_page|filemap|io_schedule|wait_on_buffer|bit_wait|blk_|bio_wait|iomap|^nfs")
# Minimum share of the time that a line mentions, and that another number needs to divide a cause.
MENTIONED_MIN = 0.05
# Minimum part (0..1) of the sent bytes from which bytes of the disk are mentioned.
DISK_PART_MIN = 0.1
# Minimum number of samples of threads that gives shares.
SAMPLES_MIN = 10
# Share of the time from which the program waits so much that more samples of its CPU time are no answer.
MOSTLY_WAITS = 0.8
# Part (0..1) of TCP's busy time from which the peer's window, or the send buffer, is the cause.
WINDOW_PART_MIN, BUFFER_PART_MIN = 0.5, 0.1
# Part (0..1) of the calls with TCP_NODELAY, or with TCP_CORK, above which that option is assumed to be set.
OPTION_PART = 0.9
# Name, reason and change of waits for the peer's window.
PEER_WINDOW = ("peer's window", "the peer's receive window is full", "let the peer read faster")
# Minimum number of readings that show whether connections hold back data.
READINGS_MIN = 5
# A socket has twice the size that the program passes to SO_SNDBUF (socket(7)).
BUFFER_FACTOR = 2


@dataclass(frozen=True)
class WaitCause:
    """A cause of waits.

    name: the cause in two or three words
    share: part (0..1) of the time of the threads
    call: most frequent system call of these waits
    what: reason for the waits, in words
    change: change that ends the waits; None: no change is known or needed
    """

    name: str
    share: float
    call: str
    what: str
    change: str | None = None


@dataclass(frozen=True)
class Waiting:
    """Waits of a program.

    share: part (0..1) of the time
    causes: the largest first
    disk_bytes: bytes from the disk, or 0 if they are few beside the sent bytes
    """

    share: float
    causes: Sequence[WaitCause]
    disk_bytes: int = 0

    @property
    def is_most(self) -> bool:
        """True if the program waits so much that CPU time is not what limits it."""
        return self.share >= MOSTLY_WAITS

    def sentence(self) -> str:
        """Return the first cause with its change, and the shares of other causes."""
        first, *others = self.causes
        text = f"{_percent(first.share)} of the time in {first.call}: {first.what}"
        if first.change:
            text += f"; change: {first.change}"
        more = [f"{_percent(row.share)} {row.name}" for row in others if row.share >= MENTIONED_MIN]
        text = f"{text}; also {', '.join(more)}" if more else text
        is_named = first.name == "disk" or not self.disk_bytes
        return text if is_named else f"{text}; {format_bytes(self.disk_bytes)} came from the disk"


def waiting(raw: Measured) -> Waiting | None:
    """Return why the threads of a program wait, or None if their waits are unknown (why_unknown())."""
    waits = raw.waits
    if waits is None or (waits.samples or 0) < SAMPLES_MIN:
        return None
    asleep = [row for row in waits.rows if row.call is not None]
    disk = [row for row in asleep if _is_disk(row, asleep)]
    others = [row for row in asleep if not _is_disk(row, asleep)]
    found = [_disk(waits, disk), *(cause for find in FINDERS for cause in find(raw, waits, others))]
    causes = [cause for cause in found if cause.share > 0]
    disk_bytes = waits.disk_bytes or 0
    return Waiting(
        _share(waits, asleep),
        sorted(causes, key=lambda cause: -cause.share),
        disk_bytes if disk_bytes >= DISK_PART_MIN * raw.watched.sent_bytes else 0,
    )


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def why_unknown(waits: Waits) -> str | None:
    """Return why the waits of the threads are unknown, or None if they are known."""
    if waits.samples is None:
        return waits.reason
    return f"only {counted(waits.samples, 'sample')}" if waits.samples < SAMPLES_MIN else None


def _share(waits: Waits, rows: Iterable[WaitRow]) -> float:
    return sum(row.samples for row in rows) / (waits.samples or 1)


def _main_call(rows: Iterable[WaitRow]) -> str:
    """Return the most frequent call of some rows."""
    calls: Counter[str] = Counter()
    for row in rows:
        calls[row.call or ""] += row.samples
    return calls.most_common(1)[0][0] if calls else ""


def _is_disk(row: WaitRow, rows: Sequence[WaitRow]) -> bool:
    """Return True if a thread waits for a page of a file.

    A row without a function is classified like most rows of the same call that have a function.
    """
    if row.function is not None:
        return bool(DISK.search(row.function))
    if row.file == "file":
        return True
    alike = [other for other in rows if other.call == row.call and other.function is not None]
    of_disk = [other for other in alike if DISK.search(other.function or "")]
    return 2 * added(of_disk, lambda other: other.samples) > added(alike, lambda other: other.samples)


def _disk(waits: Waits, rows: Sequence[WaitRow]) -> WaitCause:
    """Return the waits for pages of files that are not in the page cache. `rows`: these waits."""
    amount = f" ({format_bytes(waits.disk_bytes)})" if waits.disk_bytes else ""
    what = f"pages of files come from the disk{amount}"
    return WaitCause("disk", _share(waits, rows), _main_call(rows), what, "readahead(2), or more page cache")


def _sending(raw: Measured, waits: Waits, asleep: Sequence[WaitRow]) -> Iterable[WaitCause]:
    """Yield the waits for room in a socket, limited by the peer's window, the send buffer, or the path."""
    rows = [row for row in asleep if row.call in SENDING_CALLS and row.file == "socket"]
    name, what, change = _room(raw, waits)
    yield WaitCause(name, _share(waits, rows), _main_call(rows), what, change)


def _room(raw: Measured, waits: Waits) -> tuple[str, str, str | None]:
    """Return name, reason and change of waits for room in a socket."""
    busy_ms = added(raw.connections, lambda row: row.busy_ms)
    window_ms = added(raw.connections, lambda row: row.rwnd_limited_ms)
    buffer_ms = added(raw.connections, lambda row: row.sndbuf_limited_ms)
    if busy_ms and window_ms >= WINDOW_PART_MIN * busy_ms:
        return PEER_WINDOW
    if busy_ms and buffer_ms >= BUFFER_PART_MIN * busy_ms:
        if waits.fixed_buffer_bytes is None:
            return "send buffer", "the send buffer is full", "raise net.ipv4.tcp_wmem"
        size = format_bytes(waits.fixed_buffer_bytes // BUFFER_FACTOR)
        what = f"the send buffer is full, because SO_SNDBUF fixes it at {size}"
        return "send buffer", what, "leave SO_SNDBUF unset, or raise it"
    return "network or peer", "the network or the peer takes no more bytes", None


def _receiving(raw: Measured, waits: Waits, asleep: Sequence[WaitRow]) -> Iterable[WaitCause]:
    """Yield the waits for data: held messages, notifications, a full window, and requests."""
    rows = [
        row for row in asleep if row.call in POLLING or (row.call in RECEIVING_CALLS and row.file != "file")
    ]
    left, call = _share(waits, rows), _main_call(rows)
    parts = [_notifications(raw, waits), _held(raw, waits), _full_window(raw, rows)]
    for part in parts:
        if part is None:
            continue
        name, share, what, change = part
        share = min(left, share)
        left -= share
        yield WaitCause(name, share, call, what, change)
    yield WaitCause("requests or data", left, call, "nothing to do until requests or data arrive")


Part = tuple[str, float, str, str]


def _notifications(raw: Measured, waits: Waits) -> Part | None:
    """Return the waits for notifications of zero-copy sends, which the hooks measure."""
    waited_ns, elapsed_ns = added(raw.buffers, lambda row: row.waited_ns), wall_ns(raw.run.segments)
    if not waited_ns or elapsed_ns <= 0:
        return None
    share = waited_ns / elapsed_ns / max(1, waits.threads)
    return (
        "notifications",
        share,
        "a zero-copy send is not complete",
        "send from more buffers (copyscope why)",
    )


def _held(raw: Measured, waits: Waits) -> Part | None:
    """Return the waits in which TCP holds back the end of a message: TCP_CORK, or Nagle's algorithm."""
    if waits.connection_samples < READINGS_MIN:
        return None
    sends = [row for row in volume(raw.volume, "send") if row.protocol in ("tcp", "mptcp")]
    calls = added(sends, lambda row: row.calls)
    part = waits.held_samples / waits.connection_samples
    if (
        not calls
        or part < MENTIONED_MIN
        or added(sends, lambda row: row.nodelay_calls) >= OPTION_PART * calls
    ):
        return None
    if added(sends, lambda row: row.cork_calls) >= OPTION_PART * calls:
        return "TCP_CORK", part, "TCP_CORK holds the end of a message", "clear TCP_CORK after the last piece"
    what = "Nagle's algorithm holds the end of a message until a delayed ACK arrives"
    return "Nagle's algorithm", part, what, "TCP_NODELAY, or one writev for each message"


def _full_window(raw: Measured, rows: Iterable[WaitRow]) -> Part | None:
    """Return the waits of a program that polls for room, if the peer's window is full most of the time."""
    busy_ms = added(raw.connections, lambda row: row.busy_ms)
    window_ms = added(raw.connections, lambda row: row.rwnd_limited_ms)
    elapsed_ms = wall_ns(raw.run.segments) / 1e6 * max(1, len(raw.connections))
    polls = any(row.call in POLLING for row in rows)
    if not polls or not busy_ms or window_ms < WINDOW_PART_MIN * busy_ms or elapsed_ms <= 0:
        return None
    name, what, change = PEER_WINDOW
    return name, window_ms / elapsed_ms, what, change


def _others(_: Measured, waits: Waits, asleep: Sequence[WaitRow]) -> Iterable[WaitCause]:
    """Yield the waits for other threads, the sleeps of a fixed time, and the waits in all other calls."""
    kinds = {
        "other threads": (("futex",), "another thread has the lock, or the work"),
        "sleep": (SLEEPING, "the program sleeps for a fixed time"),
    }
    known = (*POLLING, *SENDING_CALLS, *RECEIVING_CALLS, "futex", *SLEEPING)
    for name, (calls, what) in kinds.items():
        rows = [row for row in asleep if row.call in calls]
        yield WaitCause(name, _share(waits, rows), _main_call(rows), what)
    rows = [row for row in asleep if _is_other(row, known)]
    yield WaitCause("other calls", _share(waits, rows), _main_call(rows), "the reason is not known")


def _is_other(row: WaitRow, known: Sequence[str]) -> bool:
    """Return True if no other finder counts this row."""
    if row.call in SENDING_CALLS:
        return row.file != "socket"
    return row.call not in known or (row.call in RECEIVING_CALLS and row.file == "file")


Finder = Callable[[Measured, Waits, Sequence[WaitRow]], Iterable[WaitCause]]
# Finders of causes among the waits that are not for the disk.
FINDERS: Sequence[Finder] = (_sending, _receiving, _others)

"""The rows of a watched program's volume: what its sockets moved, by call. Pure."""

from collections.abc import Iterable

from copyscope.record.sections import Section
from copyscope.record.watched import Volume

# Calls that hand the kernel pages of files, of pipes or of the program's own memory: it refers to them
# (MSG_SPLICE_PAGES, formerly sendpage).
SPLICED_MEMORY = "splice after vmsplice"

# Bytes that it had written into the pipe: copied there, and by reference from then on.
SPLICED_WRITTEN = "splice after write"

# Pages of packets that splice(2) had taken out of a socket: from one to the other without a copy.
SPLICED_ON = "splice between sockets"

BY_REFERENCE = ("sendfile", "splice", SPLICED_MEMORY, SPLICED_WRITTEN, SPLICED_ON)

# One call of these is one at the socket.
ONE_EACH = ("write", "writev", "sendto", "sendmsg")

# Sockets whose bytes BPF programs may redirect to another one: copied in and out by functions of their own,
# which no hook sees, and past TCP's own count.
SOCKMAP = "sockmap"

# Received without a receive call: by splice(2), and by getsockopt(2) with TCP_ZEROCOPY_RECEIVE, which maps
# what it can and copies the rest. Counted in ledger segments, and in all that follow the first that saw any.
SPLICED_IN = "splice from a socket"

MAPPED_IN = "receive by mapping"

TAKEN = (SPLICED_IN, MAPPED_IN)

# With MSG_TRUNC these drop what they receive or look at (tcp(7), mptcp_recvmsg()); others tell the length of
# a datagram, of which they copy what there is room for.
DROPPING = ("tcp", "mptcp")


def volume(rows: Iterable[Volume], direction: str, phase: str | None = None) -> list[Volume]:
    """The rows of one direction, of one phase or of all."""
    return [r for r in rows if r.direction == direction and (phase is None or phase in r.phase.split("+"))]


def dropped(rows: Iterable[Volume], phase: str | None = None) -> list[Volume]:
    """Of what was received or looked at, what was never copied to the program."""
    return [row for row in volume(rows, "truncated", phase) if row.protocol in DROPPING]


def urgent(rows: Iterable[Volume], phase: str) -> list[Volume]:
    """The urgent bytes of TCP: of a copy that is counted at its packet no system call is known."""
    found = volume(rows, "copy_out", phase)
    return [row for row in found if row.protocol == "tcp" and row.syscall != "other"]


def added(rows: Iterable[Section], key: str) -> int:
    return sum(getattr(row, key) for row in rows)

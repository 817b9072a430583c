"""Sockets of a watched program that no hook counts: of which kind, as their files say."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

# What sockfs calls the protocol (sockfs_xattr_get(), net/socket.c) -> what a user calls it.
UNCOUNTED = {
    "AF_VSOCK": "vsock",
    "XDP": "AF_XDP",
    "PACKET": "AF_PACKET",
    "SCTP": "SCTP",
    "SCTPv6": "SCTP",
    "SMC": "SMC",
    "SMC6": "SMC",
    "TIPC": "TIPC",
    "RDS": "RDS",
}
PROC = Path("/proc")
NAME = "system.sockprotoname"
# Of all processes together: to look at a file takes 5 us.
FILES_MAX = 1024


def uncounted(pids: Iterable[int]) -> set[str]:
    """The kinds of sockets, beyond those that are counted, that these processes have open."""
    found: set[str] = set()
    left = FILES_MAX
    for pid in sorted(pids):
        # One that ended meanwhile.
        with suppress(OSError):
            for name in os.listdir(PROC / str(pid) / "fd")[:left]:  # noqa: PTH208
                left -= 1
                with suppress(OSError):
                    protocol = os.getxattr(PROC / str(pid) / "fd" / name, NAME).rstrip(b"\0")
                    found.add(UNCOUNTED.get(protocol.decode("ascii", "replace"), ""))
    return found - {""}

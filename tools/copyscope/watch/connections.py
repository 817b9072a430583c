"""What TCP itself says of each connection, through ss(8): the second opinion on the bytes, and the path.

ESTAB 0 2554320 127.0.0.1:59112 127.0.0.1:5999 ino:42 sk:1 ... mss:32768 ... bytes_acked:1 bytes_received:1
"""

import re
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SS = ("ss", "-H", "-O", "-t", "-i", "-e", "-n")
NUMBERS = {
    "mss_bytes": r"\bmss:(\d+)",
    "bytes_acked": r"\bbytes_acked:(\d+)",
    "bytes_received": r"\bbytes_received:(\d+)",
    "bytes_retrans": r"\bbytes_retrans:(\d+)",
    "busy_ms": r"\bbusy:(\d+)ms",
    "rwnd_limited_ms": r"\brwnd_limited:(\d+)ms",
    "sndbuf_limited_ms": r"\bsndbuf_limited:(\d+)ms",
}


@dataclass(frozen=True)
class Connection:
    """One TCP connection as the kernel counts it; what ss leaves out of an idle one is 0."""

    inode: int
    state: str
    local: str
    peer: str
    send_queue_bytes: int
    receive_queue_bytes: int
    mss_bytes: int
    bytes_acked: int
    bytes_received: int
    bytes_retrans: int
    busy_ms: int
    rwnd_limited_ms: int
    sndbuf_limited_ms: int

    @property
    def written(self) -> int:
        """What the program has put into it: acknowledged, or still in the queue (write_seq - snd_una)."""
        return self.bytes_acked + self.send_queue_bytes

    @property
    def taken(self) -> int:
        """What the program has taken out of it."""
        return self.bytes_received - self.receive_queue_bytes

    def as_record(self) -> dict[str, Any]:
        return asdict(self)


def parse(text: str) -> dict[int, Connection]:
    """inode -> connection, of what ss prints with -H -O -t -i -e -n."""
    found: dict[int, Connection] = {}
    for line in text.splitlines():
        words = line.split()
        inode = re.search(r"\bino:(\d+)", line)
        # Without the module tcp_diag ss reads /proc/net/tcp, which counts no bytes: then TCP has no opinion.
        if len(words) < 5 or inode is None or " cwnd:" not in line:
            continue
        numbers = {
            name: int(match.group(1)) if (match := re.search(pattern, line)) else 0
            for name, pattern in NUMBERS.items()
        }
        found[int(inode.group(1))] = Connection(
            int(inode.group(1)), words[0], words[3], words[4], int(words[2]), int(words[1]), **numbers
        )
    return found


def snapshot(namespace: Path) -> dict[int, Connection] | None:
    """All TCP connections of a network namespace; None without ss or when the namespace has gone."""
    try:
        done = subprocess.run(
            ["nsenter", f"--net={namespace}", *SS], capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse(done.stdout) if done.returncode == 0 else None


def host_of(address: str) -> str:
    """`10.0.0.1:80` -> `10.0.0.1`, `[::1%lo]:80` -> `::1`."""
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    return host.removeprefix("::ffff:") if "." in host else host

"""What the kernel made of a topology: pure parsers of `ip -j -d link`, `ethtool -k` and /proc/net/packet."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from copyscope.topology.shell import TopologyError

ETH_P_ALL = 0x0003  # linux/if_ether.h: a tap of every packet, which makes zero-copy sends copy

# The record's name of a feature -> its line in `ethtool -k`.
FEATURES = {
    "rx_checksum": "rx-checksumming",
    "tx_checksum": "tx-checksumming",
    "scatter_gather": "scatter-gather",
    "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
    "lro": "large-receive-offload",
    "highdma": "highdma",
    "tx_nocache_copy": "tx-nocache-copy",
}
UNREADABLE = "topology: ip -j: what it printed cannot be read: update iproute2"
XDP_MODES = {1: "native", 2: "generic", 3: "offloaded"}  # XDP_ATTACHED_* in linux/if_link.h


@dataclass(frozen=True)
class Link:
    """One device as `ip -j -d link` shows it."""

    index: int
    name: str
    driver: str
    mtu_bytes: int
    max_mtu_bytes: int | None
    qdisc: str | None
    gso_max_bytes: int | None
    xdp: str | None
    up: bool


@dataclass(frozen=True)
class PacketSocket:
    """One AF_PACKET socket that taps every protocol; index 0 means every device of its namespace."""

    interface_index: int
    inode: int


def parse_links(text: str) -> list[Link]:
    """The links in the output of `ip -j -d link`. Raises TopologyError when it is not what ip prints."""
    try:
        # ip prints {} for a device that a filter dropped.
        return [_link(row) for row in parse_json(text) if row]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise TopologyError(UNREADABLE) from error


def parse_json(text: str) -> list[dict[str, Any]]:
    """What `ip -j` printed: nothing at all means no rows. Raises TopologyError."""
    try:
        rows: list[dict[str, Any]] = json.loads(text or "[]")
    except (ValueError, RecursionError) as error:
        raise TopologyError(UNREADABLE) from error
    return rows


def _link(row: dict[str, Any]) -> Link:
    attached = row.get("xdp")
    mode = attached.get("mode") if attached else None
    return Link(
        index=int(row["ifindex"]),
        name=str(row["ifname"]),
        driver=str(row.get("linkinfo", {}).get("info_kind") or row.get("link_type", "unknown")),
        mtu_bytes=int(row["mtu"]),
        max_mtu_bytes=row.get("max_mtu"),
        qdisc=row.get("qdisc"),
        gso_max_bytes=row.get("gso_max_size"),
        xdp=XDP_MODES.get(int(mode or 0), f"mode {mode}") if attached else None,
        up="UP" in row.get("flags", []),
    )


def parse_features(text: str) -> dict[str, bool | None]:
    """The record's features out of `ethtool -k DEVICE`; None for one that this ethtool does not print."""
    printed: dict[str, bool] = {}
    for line in text.splitlines():
        name, colon, value = line.strip().partition(":")
        if colon and value.split()[:1] in (["on"], ["off"]):
            printed[name] = value.split()[0] == "on"
    return {feature: printed.get(line) for feature, line in FEATURES.items()}


def parse_packet_sockets(text: str) -> list[PacketSocket]:
    """The ETH_P_ALL sockets in /proc/PID/net/packet (from packet_seq_show(), net/packet/af_packet.c)."""
    sockets: list[PacketSocket] = []
    for line in text.splitlines()[1:]:
        columns = line.split()  # sk RefCnt Type Proto Iface R Rmem User Inode
        if len(columns) >= 9 and int(columns[3], 16) == ETH_P_ALL:
            sockets.append(PacketSocket(interface_index=int(columns[4]), inode=int(columns[8])))
    return sockets


def device_row(side: str, link: Link, features: Mapping[str, bool | None]) -> dict[str, Any]:
    """A row of the record's `topology.devices`."""
    row = asdict(link)
    del row["index"], row["up"], row["xdp"], row["max_mtu_bytes"]
    return {"side": side, **row, "features": features}


def packet_socket_rows(
    side: str, text: str, devices: Mapping[int, str], *, here: bool = True
) -> list[dict[str, Any]]:
    """The record's `topology.packet_sockets` of one side, from its /proc/PID/net/packet.

    Each makes a zero-copy send a copy. `devices`: index -> name. Not `here`: whose they are is not known.
    """
    sockets = parse_packet_sockets(text)
    owners = find_socket_owners(socket.inode for socket in sockets) if here else {}
    rows: list[dict[str, Any]] = []
    for socket in sockets:
        pid, comm = owners.get(socket.inode, (None, None))
        device = {0: "any", **devices}.get(socket.interface_index, f"index {socket.interface_index}")
        rows.append({"side": side, "device": device, "protocol": "ETH_P_ALL", "pid": pid, "comm": comm})
    return rows


def read_sysctls(names: Sequence[str], run: Callable[[Sequence[str]], str]) -> dict[str, str | None]:
    """Sysctl name -> value, None for one that is absent. `run`: what a command prints where they are read."""
    # grep ends with 2 when one file is missing, which is an answer here and not a failure.
    script = 'grep -sH "" "$@"; [ $? -le 2 ]'
    files = (f"/proc/sys/{name.replace('.', '/')}" for name in names)
    values: dict[str, str | None] = dict.fromkeys(names)
    for line in run(("sh", "-c", script, "sh", *files)).splitlines():
        file, _, value = line.partition(":")
        name = file.removeprefix("/proc/sys/").replace("/", ".")
        if name in values:
            values[name] = " ".join(value.split())
    return values


def find_socket_owners(inodes: Iterable[int], proc: Path = Path("/proc")) -> dict[int, tuple[int, str]]:
    """Socket inode -> (pid, comm) of a process that has it open; one that nobody shows has no entry."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    owners: dict[int, tuple[int, str]] = {}
    for pid in (
        sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal()) if wanted else ()
    ):
        # One that ended, or is not ours to look at, owns nothing that we can name.
        with suppress(OSError):
            for descriptor in (proc / str(pid) / "fd").iterdir():
                inode = wanted.get(str(descriptor.readlink()))
                if inode is not None and inode not in owners:
                    owners[inode] = (pid, _comm(proc / str(pid)))
    return owners


def _comm(process: Path) -> str:
    try:
        return (process / "comm").read_text(errors="replace").strip()
    except OSError:
        return "?"

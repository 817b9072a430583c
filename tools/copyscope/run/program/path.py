"""The path as it is found, for the record's `topology`: devices, their features, who listens on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from copyscope.asking import LimitError, ask
from copyscope.run.program.connections import Connection, host_of, unmapped
from copyscope.run.program.neighbours import whereabouts
from copyscope.topology.inspection import (
    Link,
    device_row,
    packet_socket_rows,
    parse_features,
    parse_json,
    parse_links,
    read_sysctls,
)
from copyscope.topology.shell import TopologyError

PEERS_MAX = 16
OWN_NAMESPACE = Path("/proc/self/ns/net")
FEATURES = ("tso", "gso", "gro")


@dataclass(frozen=True)
class Namespace:
    """The network namespace of the target."""

    path: Path
    pid: int | None  # a process inside, for /proc/PID/net

    @property
    def inode(self) -> int | None:
        """Its number; None when it cannot be looked at: the process has ended."""
        try:
            return self.path.stat().st_ino
        except OSError:
            return None

    def run(self, *argv: str) -> str:
        """The output of a command inside; empty when it fails: then what it would have told is unknown."""
        try:
            done = ask(["nsenter", f"--net={self.path}", "--", *argv])
        except (OSError, LimitError):
            return ""
        return done.text if done.status == 0 else ""

    def sysctls(self, _side: Literal["sender", "receiver"], names: Sequence[str]) -> dict[str, str | None]:
        """Sysctl name -> value inside; for machine.describe()."""
        return read_sysctls(names, lambda command: self.run(*command))


def namespace_of(found: Namespace, peers: Sequence[Mapping[str, Any]]) -> Namespace:
    """Where the sockets were: of a program that is gone, perhaps our own network namespace."""
    own = Namespace(OWN_NAMESPACE, None)
    return own if found.inode is None and any(row["netns"] == own.inode for row in peers) else found


def devices_of(namespace: Namespace, peers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Address -> device, as the hooks noted them in this namespace when a socket was first used."""
    return {
        unmapped(row["address"]): str(row["device"])
        for row in peers
        if row["netns"] == namespace.inode and row["device"]
    }


def describe(
    namespace: Namespace, connections: Sequence[Connection], noted: Mapping[str, str]
) -> dict[str, Any]:
    """The `topology` section of a watched program, from the connections that it used.

    `noted`: through which device it reached whom, also over connections that are closed by now.
    """
    peers = list(dict.fromkeys([*(host_of(c.peer) for c in connections), *noted]))[:PEERS_MAX]
    device_of = {peer: noted.get(peer) or _device_to(namespace, peer) for peer in peers}
    try:
        links = {link.name: link for link in parse_links(namespace.run("ip", "-j", "-d", "link"))}
    except TopologyError:
        links = {}
    used = [name for name in dict.fromkeys(device_of.values()) if name in links]
    features = {name: parse_features(namespace.run("ethtool", "-k", name)) for name in used}
    first = used[0] if used else None
    kinds = {peer: links[name].driver if name in links else None for peer, name in device_of.items()}
    local = whereabouts(namespace.path, connections, kinds)
    return {
        "kind": ", ".join(used) or "no path seen",
        "what": "the network of the program, as it was found",
        "mtu_bytes": links[first].mtu_bytes if first else None,
        "offloads": {name: features[first][name] if first else None for name in FEATURES},
        "local_delivery": bool(local) and all(local.values()),
        "xdp": next((links[name].xdp for name in used if links[name].xdp), None),
        "devices": [device_row("target", links[name], features[name]) for name in used],
        "packet_sockets": packet_sockets(namespace, links),
        "route_congestion_control": None,
        "notes": [],
        "peers": [{"address": peer, "device": device_of[peer], "local": local[peer]} for peer in peers],
    }


def _device_to(namespace: Namespace, peer: str) -> str | None:
    """Through which device packets to an address leave."""
    try:
        return str(parse_json(namespace.run("ip", "-j", "route", "get", peer))[0]["dev"])
    except (TopologyError, LookupError, TypeError):
        return None


def packet_sockets(namespace: Namespace, links: dict[str, Link]) -> list[dict[str, Any]]:
    """Who taps every packet of the namespace."""
    listing = f"/proc/{namespace.pid}/net/packet" if namespace.pid is not None else "/proc/net/packet"
    try:
        text = Path(listing).read_text(encoding="ascii")
    except OSError:
        return []
    return packet_socket_rows("target", text, {link.index: link.name for link in links.values()})

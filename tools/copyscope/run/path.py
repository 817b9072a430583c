"""The path as it is found, for the record's `topology`: devices, their features, who listens on them, and
which peers are on this machine and reached inside its kernel.

The end of such a peer is found in a network namespace here, by exact questions to sock_diag(7) and not by the
device: behind a veth may be a router and another machine, behind a macvlan or a bridge the next container.
"""

import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from copyscope.asking import LimitError, ask
from copyscope.record.session_result import Record
from copyscope.record.two_hosts import Message
from copyscope.run.connections import (
    HEADER,
    NETLINK_SOCK_DIAG,
    NLM_F_REQUEST,
    Connection,
    host_of,
    socket_in,
    unmapped,
)
from copyscope.run.processes import PROC
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
NAMED = Path("/run/netns")
# More are not looked at: then who was not found is not known.
NAMESPACES_MAX = 256
PAIRS_MAX = 4096
CONNECTIONS_MAX = 4
SOCK_DIAG_BY_FAMILY = 20
# struct inet_diag_req_v2 and, in it, struct inet_diag_sockid (linux/inet_diag.h)
QUESTION = struct.Struct("=BBBxI 2s2s16s16sI8s")
NO_COOKIE = b"\xff" * 8
ANY_STATE = 0xFFFFFFFF
RTM_GETNSID, NETNSA_NSID, NETNSA_FD = 90, 1, 3
# Reserved and for examples: no machine's (RFC 1112, RFC 3849).
NOBODY = {socket.AF_INET: "240.0.0.1", socket.AF_INET6: "2001:db8::ffff"}


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


def namespace_of(found: Namespace, peers: Sequence[Message]) -> Namespace:
    """Where the sockets were: of a program that is gone, perhaps our own network namespace."""
    own = Namespace(OWN_NAMESPACE, None)
    return own if found.inode is None and any(row["netns"] == own.inode for row in peers) else found


def devices_of(namespace: Namespace, peers: Sequence[Message]) -> dict[str, str]:
    """Address -> device, as the hooks noted them in this namespace when a socket was first used."""
    return {
        unmapped(row["address"]): str(row["device"])
        for row in peers
        if row["netns"] == namespace.inode and row["device"]
    }


def describe(namespace: Namespace, connections: Sequence[Connection], noted: Mapping[str, str]) -> Record:
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


def packet_sockets(namespace: Namespace, links: dict[str, Link]) -> list[Record]:
    """Who taps every packet of the namespace."""
    listing = f"/proc/{namespace.pid}/net/packet" if namespace.pid is not None else "/proc/net/packet"
    try:
        text = Path(listing).read_text(encoding="ascii")
    except OSError:
        return []
    return packet_socket_rows("target", text, {link.index: link.name for link in links.values()})


def whereabouts(
    namespace: Path, connections: Sequence[Connection], kinds: Mapping[str, str | None]
) -> dict[str, bool | None]:
    """Peer -> whether packets reach it inside this kernel; None: not known.

    namespace: of the program; kinds: peer -> the kind of device to it (`ether`: hardware, None: not known).
    Behind hardware only a socket that is found here is here; behind others its address says it, too.
    """
    if not kinds:
        return {}
    places, complete = namespaces()
    with Namespaces(namespace, places) as here:
        return {peer: _where(peer, kind, connections, here, complete) for peer, kind in kinds.items()}


def _where(
    peer: str, kind: str | None, connections: Sequence[Connection], here: "Namespaces", complete: bool
) -> bool | None:
    if kind == "loopback":
        return True
    mine = [one for one in connections if host_of(one.peer) == peer][:CONNECTIONS_MAX]
    found = [place for one in mine for place in here.holding(one)]
    if not found and kind != "ether" and kind is not None:
        found = here.with_address(peer)
    if found:
        return any(here.are_linked(place) for place in found)
    return False if complete and kind is not None else None


def namespaces() -> tuple[dict[int, Path], bool]:
    """Inode -> a file of each network namespace of this machine; whether these are all."""
    found: dict[int, Path] = {}
    pids = sorted(int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal())
    named = sorted(NAMED.iterdir()) if NAMED.is_dir() else []
    for path in (*(PROC / str(pid) / "ns/net" for pid in pids), *named):
        if len(found) >= NAMESPACES_MAX:
            return found, False
        # One that ended meanwhile.
        with suppress(OSError):
            found.setdefault(path.stat().st_ino, path)
    return found, True


@dataclass
class Namespaces:
    """The network namespaces of this machine, as they are asked."""

    own: Path
    places: Mapping[int, Path]
    _open: ExitStack = field(default_factory=ExitStack)
    _diag: dict[int, socket.socket] = field(default_factory=dict)
    _route: dict[int, socket.socket] = field(default_factory=dict)
    _reached: set[int] | None = None

    def __enter__(self) -> "Namespaces":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def holding(self, mine: Connection) -> list[int]:
        """Where the other end of a connection is."""
        return [place for place in self.places if self._answers(place, mine)]

    def with_address(self, address: str) -> list[int]:
        """Where a socket can be bound to it, and not to any address (ip_nonlocal_bind)."""
        nobody = NOBODY[_family(address)]
        return [
            place for place, path in self.places.items() if binds(path, address) and not binds(path, nobody)
        ]

    def are_linked(self, place: int) -> bool:
        """Whether devices lead from the program's namespace to that one, through others or not."""
        if self._reached is None:
            self._reached = self._reach()
        return place in self._reached

    def _reach(self) -> set[int]:
        try:
            start = self.own.stat().st_ino
        except OSError:  # the program is gone: nothing speaks against it
            return set(self.places)
        reached, edge, asked = {start}, [start], 0
        while edge and asked < PAIRS_MAX:
            place = edge.pop()
            for other in self.places.keys() - reached:
                asked += 1
                if self._knows(place, other) or self._knows(other, place):
                    reached.add(other)
                    edge.append(other)
        return reached

    def _knows(self, place: int, other: int) -> bool:
        """Whether a device of one namespace has its other end, or what it stands on, in the other: only
        then the first has a number for it (peernet2id_alloc(), net/core/net_namespace.c)."""
        try:
            with self.places[other].open("rb") as handle:
                attribute = struct.pack("=HHI", 8, NETNSA_FD, handle.fileno())
                body = struct.pack("=B3x", socket.AF_UNSPEC) + attribute
                answer = _asked(self._socket(self._route, place, socket.NETLINK_ROUTE), RTM_GETNSID, body)
        except (OSError, KeyError):
            return False
        at = HEADER.size + 4
        length, kind, number = struct.unpack_from("=HHi", answer, at) if len(answer) >= at + 8 else (0, 0, -1)
        return bool(kind == NETNSA_NSID and length >= 8 and number >= 0)

    def _answers(self, place: int, mine: Connection) -> bool:
        """Without an exact one the kernel answers with a socket that listens there: of no peer."""
        question = question_of(mine)
        try:
            answer = _asked(self._socket(self._diag, place, NETLINK_SOCK_DIAG), SOCK_DIAG_BY_FAMILY, question)
        except OSError:
            return False
        kind = struct.unpack_from("=IH", answer)[1] if len(answer) >= HEADER.size + 8 else 0
        # struct inet_diag_msg: four bytes, then the ports
        ports = answer[HEADER.size + 4 : HEADER.size + 8]
        return kind == SOCK_DIAG_BY_FAMILY and ports == question[8:12]

    def _socket(self, kept: dict[int, socket.socket], place: int, protocol: int) -> socket.socket:
        if place not in kept:
            made = self._open.enter_context(
                socket_in(self.places[place], socket.AF_NETLINK, socket.SOCK_RAW, protocol)
            )
            made.settimeout(1.0)
            kept[place] = made
        return kept[place]


def question_of(mine: Connection) -> bytes:
    """For the socket at the other end: what is the peer here is its own address."""
    hosts = [socket.inet_pton(_family(host_of(name)), host_of(name)) for name in (mine.peer, mine.local)]
    ports = [struct.pack("=H", port) for port in (mine.peer_port, mine.local_port)]
    family = _family(host_of(mine.peer))
    return QUESTION.pack(
        *(family, socket.IPPROTO_TCP, 0, ANY_STATE, *ports),
        *(host.ljust(16, b"\0") for host in hosts),
        *(0, NO_COOKIE),
    )


def binds(namespace: Path, address: str) -> bool:
    """Whether an address is one of that namespace's own."""
    try:
        with socket_in(namespace, _family(address), socket.SOCK_DGRAM) as made:
            made.bind((address, 0))
    except OSError:
        return False
    return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _asked(asked: socket.socket, kind: int, body: bytes) -> bytes:
    asked.send(HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST, 0, 0) + body)
    return asked.recv(1 << 14)

# SPDX-License-Identifier: GPL-2.0-only
"""Describe the network path of a watched process for the record's `topology`.

The section names devices and their features, packet sockets, and local peers (peers that packets reach
without leaving this kernel). To find a local peer, exact requests to sock_diag(7) look for its socket in each
network namespace. The type of the device is no proof: a veth may lead to a router and another machine, and a
macvlan or a bridge to another container.
"""

import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from msgspec import convert

from copyscope.base.programs import LimitError, run_program
from copyscope.machine.topology.card import CARD_COMMAND, parse_card
from copyscope.machine.topology.links import (
    Link,
    device_row,
    packet_socket_rows,
    parse_features,
    parse_json,
    parse_links,
    read_sysctls,
)
from copyscope.machine.topology.namespace import TopologyError
from copyscope.record.measured import Device, PacketSocket, TopologySection
from copyscope.record.messages import PeerMessage
from copyscope.record.watched import Peer
from copyscope.run.connections import (
    HEADER,
    NETLINK_SOCK_DIAG,
    NLM_F_REQUEST,
    TcpConnection,
    host_of,
    open_socket_in,
    unmap_ipv4,
)
from copyscope.run.processes import PROC

# Maximum number of peers in a record.
PEERS_MAX = 16
OWN_NAMESPACE = Path("/proc/self/ns/net")
FEATURES = ("tso", "gso", "gro")
NAMED_NAMESPACES = Path("/run/netns")
# Limits of the search for peers: namespaces, pairs of namespaces, and connections of a peer. With more
# namespaces, a peer that was not found is unknown, not remote.
NAMESPACES_MAX = 256
NAMESPACE_PAIRS_MAX = 4096
CONNECTIONS_PER_PEER_MAX = 4
SOCK_DIAG_BY_FAMILY = 20
# Layout of struct inet_diag_req_v2, which contains struct inet_diag_sockid (linux/inet_diag.h).
REQUEST = struct.Struct("=BBBxI 2s2s16s16sI8s")
NO_COOKIE = b"\xff" * 8
ANY_STATE = 0xFFFFFFFF
RTM_GETNSID, NETNSA_NSID, NETNSA_FD = 90, 1, 3
# Addresses that no machine has, because they are reserved or for examples only (RFC 1112, RFC 3849).
UNUSED_ADDRESS = {socket.AF_INET: "240.0.0.1", socket.AF_INET6: "2001:db8::ffff"}


@dataclass(frozen=True)
class TargetNamespace:
    """Network namespace of the watched process."""

    path: Path
    pid: int | None  # pid of a process in the namespace, for /proc/PID/net

    @property
    def inode(self) -> int | None:
        """Inode number of the namespace; None if the process has exited."""
        try:
            return self.path.stat().st_ino
        except OSError:
            return None

    def run(self, *argv: str) -> str:
        """Run a command in the namespace; return its output, or "" if the command fails."""
        try:
            result = run_program(["nsenter", f"--net={self.path}", "--", *argv])
        except (OSError, LimitError):
            return ""
        return result.text if result.status == 0 else ""

    def sysctls(self, _side: Literal["sender", "receiver"], names: Sequence[str]) -> dict[str, str | None]:
        """Map sysctl names to their values in the namespace, for describe_machine()."""
        return read_sysctls(names, lambda command: self.run(*command))


def namespace_of(namespace: TargetNamespace, peers: Sequence[PeerMessage]) -> TargetNamespace:
    """Return the namespace of the watched sockets.

    If the process is gone and our own namespace is among those of `peers`, return our own namespace.
    """
    own = TargetNamespace(OWN_NAMESPACE, None)
    return own if namespace.inode is None and any(row["netns"] == own.inode for row in peers) else namespace


def devices_of(namespace: TargetNamespace, peers: Sequence[PeerMessage]) -> dict[str, str]:
    """Map peers' addresses to devices. The hooks noted both when each socket was first used."""
    return {
        unmap_ipv4(row["address"]): str(row["device"])
        for row in peers
        if row["netns"] == namespace.inode and row["device"]
    }


def describe(
    namespace: TargetNamespace, connections: Sequence[TcpConnection], noted_devices: Mapping[str, str]
) -> TopologySection:
    """Return the `topology` section of a watched process, from its connections.

    `noted_devices`: maps peers' addresses to devices, including those of closed connections.
    """
    peers = list(dict.fromkeys([*(host_of(c.peer) for c in connections), *noted_devices]))[:PEERS_MAX]
    device_of = {peer: noted_devices.get(peer) or _device_to(namespace, peer) for peer in peers}
    try:
        links = {link.name: link for link in parse_links(namespace.run("ip", "-j", "-d", "link"))}
    except TopologyError:
        links = {}
    used = [name for name in dict.fromkeys(device_of.values()) if name in links]
    features = {name: parse_features(namespace.run("ethtool", "-k", name)) for name in used}
    first = used[0] if used else None
    kinds = {peer: links[name].driver if name in links else None for peer, name in device_of.items()}
    local = find_local_peers(namespace.path, connections, kinds)
    devices = [
        replace(device_row("target", links[name], features[name]), card=_card(namespace, links[name]))
        for name in used
    ]
    return TopologySection(
        kind=", ".join(used) or "no path seen",
        what="the network of the program, as it was found",
        mtu_bytes=links[first].mtu_bytes if first else None,
        offloads={name: features[first][name] if first else None for name in FEATURES},
        local_delivery=bool(local) and all(local.values()),
        xdp=next((links[name].xdp for name in used if links[name].xdp), None),
        devices=convert(devices, list[Device], from_attributes=True),
        packet_sockets=packet_sockets(namespace, links),
        notes=[],
        peers=[Peer(peer, device_of[peer], local[peer]) for peer in peers],
    )


def _card(namespace: TargetNamespace, link: Link) -> dict[str, str]:
    """Return the settings of a network card; empty for a virtual device, whose kind the kernel reports."""
    return parse_card(namespace.run(*CARD_COMMAND, link.name)) if link.driver == "ether" else {}


def _device_to(namespace: TargetNamespace, peer: str) -> str | None:
    """Return the device on the route to a peer's address, or None."""
    try:
        return str(parse_json(namespace.run("ip", "-j", "route", "get", peer))[0]["dev"])
    except (TopologyError, LookupError, TypeError):
        return None


def packet_sockets(namespace: TargetNamespace, links: dict[str, Link]) -> list[PacketSocket]:
    """Return the namespace's packet sockets that receive a copy of every packet."""
    listing = f"/proc/{namespace.pid}/net/packet" if namespace.pid is not None else "/proc/net/packet"
    try:
        text = Path(listing).read_text(encoding="ascii")
    except OSError:
        return []
    rows = packet_socket_rows("target", text, {link.index: link.name for link in links.values()})
    return convert(rows, list[PacketSocket], from_attributes=True)


def find_local_peers(
    namespace: Path, connections: Sequence[TcpConnection], kinds: Mapping[str, str | None]
) -> dict[str, bool | None]:
    """Map each peer to True if packets reach it without leaving this kernel, False if not, None if unknown.

    `namespace`: namespace of the process. `kinds`: kind of device that leads to each peer (`ether`: hardware;
    None: unknown). Behind hardware, a peer is local only if its socket is found. Behind other devices,
    finding its address is enough.
    """
    if not kinds:
        return {}
    paths, complete = find_namespaces()
    with Namespaces(namespace, paths) as local_namespaces:
        return {
            peer: _is_local(peer, kind, connections, local_namespaces, complete)
            for peer, kind in kinds.items()
        }


def _is_local(
    peer: str,
    kind: str | None,
    connections: Sequence[TcpConnection],
    local_namespaces: "Namespaces",
    complete: bool,
) -> bool | None:
    """Return True if packets reach a peer without leaving this kernel, None if unknown.

    `kind`: kind of device that leads to the peer. `complete`: True if `local_namespaces` are all of the
    machine's namespaces.
    """
    if kind == "loopback":
        return True
    to_peer = [connection for connection in connections if host_of(connection.peer) == peer][
        :CONNECTIONS_PER_PEER_MAX
    ]
    inodes = [
        inode
        for connection in to_peer[:CONNECTIONS_PER_PEER_MAX]
        for inode in local_namespaces.find_peer_of(connection)
    ]
    if not inodes and kind != "ether" and kind is not None:
        inodes = local_namespaces.find_with_address(peer)
    if inodes:
        return any(local_namespaces.are_linked(inode) for inode in inodes)
    return False if complete and kind is not None else None


def find_namespaces() -> tuple[dict[int, Path], bool]:
    """Map inodes of this machine's network namespaces to files. Also return True if the map is complete."""
    paths: dict[int, Path] = {}
    pids = sorted(int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal())
    named_files = sorted(NAMED_NAMESPACES.iterdir()) if NAMED_NAMESPACES.is_dir() else []
    for path in (*(PROC / str(pid) / "ns/net" for pid in pids), *named_files):
        if len(paths) >= NAMESPACES_MAX:
            return paths, False
        # The process may exit meanwhile.
        with suppress(OSError):
            paths.setdefault(path.stat().st_ino, path)
    return paths, True


@dataclass
class Namespaces:
    """This machine's network namespaces, with open sockets to query them.

    own: file of the watched process's namespace
    paths: maps a namespace's inode to its file
    """

    own: Path
    paths: Mapping[int, Path]
    _open: ExitStack = field(default_factory=ExitStack)
    _diag: dict[int, socket.socket] = field(default_factory=dict)
    _route: dict[int, socket.socket] = field(default_factory=dict)
    _reachable: set[int] | None = None

    def __enter__(self) -> "Namespaces":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def find_peer_of(self, connection: TcpConnection) -> list[int]:
        """Return the inodes of the namespaces that contain the other end of a connection."""
        return [inode for inode in self.paths if self._has_peer_of(inode, connection)]

    def find_with_address(self, address: str) -> list[int]:
        """Return the inodes of the namespaces that own an address.

        A socket in such a namespace can bind to the address, but not to an unused address. (If
        ip_nonlocal_bind is set, a socket can bind to any address, which proves nothing.)
        """
        unused = UNUSED_ADDRESS[_family(address)]
        return [
            inode
            for inode, path in self.paths.items()
            if can_bind(path, address) and not can_bind(path, unused)
        ]

    def are_linked(self, inode: int) -> bool:
        """Return True if devices connect the process's namespace to `inode`, directly or indirectly."""
        if self._reachable is None:
            self._reachable = self._find_reachable()
        return inode in self._reachable

    def _find_reachable(self) -> set[int]:
        """Return the inodes of the namespaces that devices connect to the process's namespace."""
        try:
            start = self.own.stat().st_ino
        except OSError:  # the program is gone: assume that every namespace is reachable
            return set(self.paths)
        reached, unvisited, pairs = {start}, [start], 0
        while unvisited and pairs < NAMESPACE_PAIRS_MAX:
            inode = unvisited.pop()
            for other in self.paths.keys() - reached:
                pairs += 1
                if self._has_id_of(inode, other) or self._has_id_of(other, inode):
                    reached.add(other)
                    unvisited.append(other)
        return reached

    def _has_id_of(self, inode: int, other: int) -> bool:
        """Return True if a device in namespace `inode` has its peer or lower device in namespace `other`.

        Only then has the kernel given `other` an id in `inode` (peernet2id_alloc(),
        net/core/net_namespace.c).
        """
        try:
            with self.paths[other].open("rb") as handle:
                attribute = struct.pack("=HHI", 8, NETNSA_FD, handle.fileno())
                body = struct.pack("=B3x", socket.AF_UNSPEC) + attribute
                answer = _request(self._socket(self._route, inode, socket.NETLINK_ROUTE), RTM_GETNSID, body)
        except (OSError, KeyError):
            return False
        offset = HEADER.size + 4
        length, kind, nsid = (
            struct.unpack_from("=HHi", answer, offset) if len(answer) >= offset + 8 else (0, 0, -1)
        )
        return bool(kind == NETNSA_NSID and length >= 8 and nsid >= 0)

    def _has_peer_of(self, inode: int, connection: TcpConnection) -> bool:
        """Return True if namespace `inode` contains the other end of a connection.

        The answer's ports are compared, because the kernel may answer with a listening socket.
        """
        request = peer_request(connection)
        try:
            answer = _request(
                self._socket(self._diag, inode, NETLINK_SOCK_DIAG), SOCK_DIAG_BY_FAMILY, request
            )
        except OSError:
            return False
        kind = struct.unpack_from("=IH", answer)[1] if len(answer) >= HEADER.size + 8 else 0
        # struct inet_diag_msg: four bytes, then the ports.
        ports = answer[HEADER.size + 4 : HEADER.size + 8]
        return kind == SOCK_DIAG_BY_FAMILY and ports == request[8:12]

    def _socket(self, sockets: dict[int, socket.socket], inode: int, protocol: int) -> socket.socket:
        """Return the netlink socket for namespace `inode` from `sockets`; open it if necessary."""
        if inode not in sockets:
            netlink = self._open.enter_context(
                open_socket_in(self.paths[inode], socket.AF_NETLINK, socket.SOCK_RAW, protocol)
            )
            netlink.settimeout(1.0)
            sockets[inode] = netlink
        return sockets[inode]


def peer_request(connection: TcpConnection) -> bytes:
    """Return a request for the socket at the other end of a connection, by swapping the addresses."""
    hosts = [
        socket.inet_pton(_family(host_of(name)), host_of(name))
        for name in (connection.peer, connection.local)
    ]
    ports = [struct.pack("=H", port) for port in (connection.peer_port, connection.local_port)]
    return REQUEST.pack(
        *(_family(host_of(connection.peer)), socket.IPPROTO_TCP, 0, ANY_STATE, *ports),
        *(host.ljust(16, b"\0") for host in hosts),
        *(0, NO_COOKIE),
    )


def can_bind(namespace: Path, address: str) -> bool:
    """Return True if a UDP socket in the namespace can bind to an address."""
    try:
        with open_socket_in(namespace, _family(address), socket.SOCK_DGRAM) as udp:
            udp.bind((address, 0))
    except OSError:
        return False
    return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _request(netlink: socket.socket, kind: int, body: bytes) -> bytes:
    """Send a netlink request of the type `kind`, and return the answer."""
    netlink.send(HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST, 0, 0) + body)
    return netlink.recv(1 << 14)

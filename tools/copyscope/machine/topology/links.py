# SPDX-License-Identifier: GPL-2.0-only
"""Parse output of ip(8) and ethtool(8); find packet sockets; restore interfaces that a run has borrowed."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from copyscope.machine.topology.namespace import NamespaceCommand, TopologyError, run_together

ETH_P_ALL = 0x0003  # linux/if_ether.h: a socket that receives all packets makes zero-copy sends copy

# Name of a line in `ethtool -k`, by the name of the feature in the record.
ETHTOOL_FEATURES = {
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
IP_UNREADABLE = "ip -j: the output cannot be parsed; update iproute2"
XDP_MODES = {1: "native", 2: "generic", 3: "offloaded"}  # XDP_ATTACHED_* in linux/if_link.h


@dataclass(frozen=True)
class Link:
    """A network device as `ip -j -d link` shows it. `xdp`: mode of its XDP program, if it has one."""

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
class PacketSocketRow:
    """AF_PACKET socket that receives all protocols. Interface index 0 means all devices of the namespace."""

    interface_index: int
    inode: int


def parse_links(text: str) -> list[Link]:
    """Parse the output of `ip -j -d link`. Raises TopologyError."""
    try:
        # ip prints {} for a device that a filter excludes.
        return [_link(row) for row in parse_json(text) if row]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise TopologyError(IP_UNREADABLE) from error


def parse_json(text: str) -> list[dict[str, Any]]:
    """Return the rows in the output of `ip -j`. Empty output means no rows. Raises TopologyError."""
    try:
        rows: list[dict[str, Any]] = json.loads(text or "[]")
    except (ValueError, RecursionError) as error:
        raise TopologyError(IP_UNREADABLE) from error
    return rows


def _link(row: dict[str, Any]) -> Link:
    """Return the link that a row of `ip -j -d link` describes."""
    xdp = row.get("xdp")
    mode = xdp.get("mode") if xdp else None
    return Link(
        index=int(row["ifindex"]),
        name=str(row["ifname"]),
        driver=str(row.get("linkinfo", {}).get("info_kind") or row.get("link_type", "unknown")),
        mtu_bytes=int(row["mtu"]),
        max_mtu_bytes=row.get("max_mtu"),
        qdisc=row.get("qdisc"),
        gso_max_bytes=row.get("gso_max_size"),
        xdp=XDP_MODES.get(int(mode or 0), f"mode {mode}") if xdp else None,
        up="UP" in row.get("flags", []),
    )


def parse_features(text: str) -> dict[str, bool | None]:
    """Return the features that the record lists, from the output of `ethtool -k`; None if missing."""
    printed: dict[str, bool] = {}
    for line in text.splitlines():
        name, colon, value = line.strip().partition(":")
        if colon and value.split()[:1] in (["on"], ["off"]):
            printed[name] = value.split()[0] == "on"
    return {feature: printed.get(line) for feature, line in ETHTOOL_FEATURES.items()}


def parse_packet_sockets(text: str) -> list[PacketSocketRow]:
    """Return the ETH_P_ALL sockets in the text of /proc/PID/net/packet (packet_seq_show())."""
    sockets: list[PacketSocketRow] = []
    for line in text.splitlines()[1:]:
        columns = line.split()  # sk RefCnt Type Proto Iface R Rmem User Inode
        if len(columns) >= 9 and int(columns[3], 16) == ETH_P_ALL:
            sockets.append(PacketSocketRow(interface_index=int(columns[4]), inode=int(columns[8])))
    return sockets


@dataclass(frozen=True)
class DeviceRow:
    """Row of the record's `topology.devices`: a device on the path. `features`: state by offload.

    `card`: settings of a network card (card.py); empty for a virtual device.
    """

    side: str
    name: str
    driver: str
    mtu_bytes: int
    qdisc: str | None
    gso_max_bytes: int | None
    features: Mapping[str, bool | None]
    card: Mapping[str, str] = field(default_factory=dict)


def device_row(side: str, link: Link, features: Mapping[str, bool | None]) -> DeviceRow:
    """Return the row of `topology.devices` for a device."""
    return DeviceRow(side, link.name, link.driver, link.mtu_bytes, link.qdisc, link.gso_max_bytes, features)


@dataclass(frozen=True)
class PacketSocketUser:
    """A row of `topology.packet_sockets`: a socket that receives all packets, and its process."""

    side: str
    device: str
    protocol: str
    pid: int | None
    comm: str | None


def packet_socket_rows(
    side: str, text: str, devices: Mapping[int, str], *, here: bool = True
) -> list[PacketSocketUser]:
    """Return the rows of `topology.packet_sockets` for sender or receiver.

    Such a socket makes zero-copy sends copy. `text`: /proc/PID/net/packet in the namespace of `side`.
    `devices`: name by interface index. `here`: the sockets are on this machine, so that their processes can
    be found.
    """
    sockets = parse_packet_sockets(text)
    owners = find_socket_owners(socket.inode for socket in sockets) if here else {}
    rows: list[PacketSocketUser] = []
    for socket in sockets:
        pid, comm = owners.get(socket.inode, (None, None))
        device = {0: "any", **devices}.get(socket.interface_index, f"index {socket.interface_index}")
        rows.append(PacketSocketUser(side, device, "ETH_P_ALL", pid, comm))
    return rows


def read_sysctls(names: Sequence[str], run: Callable[[Sequence[str]], str]) -> dict[str, str | None]:
    """Map names of sysctls to their values. A missing sysctl is None.

    `run`: function that runs a command in the namespace to read, and returns the output of the command.
    """
    # grep exits with 2 if a file is missing, which is not an error here.
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
    """Map inodes of sockets to (pid, comm) of a process that has the socket open, if visible."""
    inode_of_link = {f"socket:[{inode}]": inode for inode in inodes}
    owners: dict[int, tuple[int, str]] = {}
    for pid in (
        sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal()) if inode_of_link else ()
    ):
        # The process may have exited, or may belong to another user.
        with suppress(OSError):
            for descriptor in (proc / str(pid) / "fd").iterdir():
                inode = inode_of_link.get(str(descriptor.readlink()))
                if inode is not None and inode not in owners:
                    owners[inode] = (pid, _comm(proc / str(pid)))
    return owners


def _comm(process: Path) -> str:
    """Return the name of a process from its folder in /proc, or `?` after its exit."""
    try:
        return (process / "comm").read_text(errors="replace").strip()
    except OSError:
        return "?"


# A run with the topology nics borrows interfaces of this machine and restores them at its end.

SYS_CLASS_NET = Path("/sys/class/net")
# Name of a switch of `ethtool -K`, by its line in `ethtool -k`. Other lines without indentation only
# summarise the indented lines below them.
ETHTOOL_SWITCHES = {
    "generic-segmentation-offload": "gso",
    "generic-receive-offload": "gro",
    "large-receive-offload": "lro",
    "rx-checksumming": "rx",
}


@dataclass(frozen=True)
class BorrowedInterface:
    """State of an interface before the run."""

    name: str
    driver: str
    mtu_bytes: int
    up: bool
    addresses: tuple[dict[str, Any], ...]  # rows of `ip -j addr`, without addresses that the kernel adds
    routes: int  # number of routes that a user or program added; copyscope does not restore these routes
    features: str  # output of `ethtool -k`

    def note(self) -> str | None:
        """Return a note for the record if the interface had addresses or routes, or None otherwise."""
        if not self.addresses and not self.routes:
            return None
        addresses = ", ".join(f"{row['local']}/{row['prefixlen']}" for row in self.addresses) or "no address"
        return f"{self.name} was in use here ({addresses}; routes that are not restored: {self.routes})"

    def address_lines(self) -> str:
        """Return lines for `ip -batch` that restore the addresses of the interface."""
        return "".join(f"addr replace {_address(row)} dev {self.name}\n" for row in self.addresses)


def read_interfaces(names: tuple[str, ...]) -> list[BorrowedInterface]:
    """Return the state of interfaces. Raises TopologyError for an interface that must not be borrowed."""
    for name in names:
        reason = why_not_usable(name)
        if reason:
            raise TopologyError(f"--topology nics: {name}: {reason}")
    update = "update iproute2"
    commands = [
        NamespaceCommand(("ip", "-j", f"-{version}", "route", "show", "table", "all"), update)
        for version in (4, 6)
    ]
    for name in names:
        commands.append(NamespaceCommand(("ip", "-j", "addr", "show", "dev", name), update))
        commands.append(NamespaceCommand(("ethtool", "-k", name), "update ethtool"))
    ipv4, ipv6, *outputs = run_together(commands)
    routes = parse_json(ipv4) + parse_json(ipv6)
    return [
        parse_interface(parse_json(addresses)[0], features, routes, driver_of(name))
        for name, addresses, features in zip(names, outputs[::2], outputs[1::2], strict=True)
    ]


def why_not_usable(name: str, root: Path = SYS_CLASS_NET) -> str | None:
    """Return why, according to sysfs, an interface cannot be borrowed, with advice; None if it can."""
    folder = root / name
    if not folder.exists():
        return "no such interface: `ip -br link` lists them"
    if not (folder / "device").exists():
        return "a virtual interface without a hardware device; use two ports of network cards"
    upper_devices = sorted(entry.name.removeprefix("upper_") for entry in folder.glob("upper_*"))
    if upper_devices:
        return (
            f"{', '.join(upper_devices)} uses this interface; remove the interface there, or use another port"
        )
    return None


def driver_of(name: str) -> str:
    """Return the name of an interface's driver."""
    try:
        return (SYS_CLASS_NET / name / "device" / "driver").readlink().name
    except OSError:  # a device without a driver link (some platform devices)
        return "unknown"


def parse_interface(
    row: dict[str, Any], features: str, routes: list[dict[str, Any]], driver: str
) -> BorrowedInterface:
    """Return the state of an interface. Raises TopologyError if a default route uses the interface.

    `row`: its row of `ip -j addr`. `features`: output of `ethtool -k`. `routes`: all routes of the machine.
    """
    name = str(row["ifname"])
    own_routes = [route for route in routes if name in _devices_of(route)]
    if any(route.get("dst") == "default" for route in own_routes):
        raise TopologyError(
            f"--topology nics: {name}: the default route uses this interface; choose another port"
        )
    return BorrowedInterface(
        name=name,
        driver=driver,
        mtu_bytes=int(row["mtu"]),
        up="UP" in row.get("flags", []),
        addresses=tuple(
            address for address in row.get("addr_info", []) if address and not _is_automatic(address)
        ),
        routes=sum(route.get("protocol") not in ("kernel", "ra") for route in own_routes),
        features=features,
    )


def features_to_restore(before: str, after: str) -> list[str]:
    """Return the arguments of `ethtool -K` that restore features.

    `before`, `after`: output of `ethtool -k` before the run, and now.
    """
    states_after = dict(_features(after))
    arguments: list[str] = []
    for line, state in _features(before):
        name = line.strip() if line.startswith("\t") else ETHTOOL_SWITCHES.get(line)
        if name and line in states_after and states_after[line] != state:
            arguments += [name, state]
    return arguments


def _features(text: str) -> list[tuple[str, str]]:
    """Return pairs (name with its indentation, `on` or `off`) of the features that can be switched."""
    features: list[tuple[str, str]] = []
    for line in text.splitlines():
        name, colon, value = line.partition(": ")
        if colon and value.split()[:1] in (["on"], ["off"]) and "[fixed]" not in value:
            features.append((name, value.split()[0]))
    return features


def _devices_of(route: dict[str, Any]) -> set[str]:
    """Return the names of the devices that a row of `ip -j route` uses."""
    hops = [route, *route.get("nexthops", [])]
    return {str(hop["dev"]) for hop in hops if "dev" in hop}


def _is_automatic(address: dict[str, Any]) -> bool:
    """Return True for an address that the kernel added: IPv6 link-local, or from a router advertisement."""
    has_flag = any(address.get(flag) for flag in ("temporary", "mngtmpaddr", "autoconf"))
    return address.get("family") == "inet6" and (has_flag or address.get("scope") == "link")


def _address(row: dict[str, Any]) -> str:
    """Return the arguments of `ip addr replace` for an address in a row of `ip -j addr`."""
    peer = f" peer {row['address']}" if row.get("address") else ""
    words = [f"{row['local']}{peer}/{row['prefixlen']}"]
    for key in ("broadcast", "scope", "label"):
        if row.get(key) and not (key == "label" and row.get("family") == "inet6"):
            words += [key, str(row[key])]
    for kind in ("valid", "preferred"):
        if row.get(f"{kind}_life_time") not in (None, 0xFFFFFFFF):
            words += [f"{kind}_lft", str(row[f"{kind}_life_time"])]
    return " ".join(words + ["noprefixroute"] * bool(row.get("noprefixroute")))

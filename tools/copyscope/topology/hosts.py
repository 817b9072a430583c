"""The kind of a run on two machines: the path between them is there, and is only looked at."""

import ipaddress
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from copyscope.escaping import visible
from copyscope.topology.inspection import Link, packet_socket_rows, parse_features, parse_links
from copyscope.topology.shell import TopologyError
from copyscope.topology.topology import SIDES, Kept, LinkSettings, Side, Topology
from copyscope.topology.workload_user import WorkloadUser, find_privileges

# Of the device $1, in parts: the link, its features, its driver, packet sockets, and which kernel runs there.
LOOK = """
ip -j -d link show dev "$1" || exit
echo @@; ethtool -k "$1" 2>/dev/null
echo @@; basename "$(readlink "/sys/class/net/$1/device/driver")"
echo @@; cat /proc/net/packet
echo @@; cat /proc/sys/kernel/random/boot_id
"""
PARTS = 5
NO_ETHTOOL = "{host}: no ethtool there: the offloads of {device} are not known"


class Seat(Protocol):
    """What is needed of the host that a side is on."""

    name: str
    near: bool
    user: WorkloadUser
    # What ssh said of it: the client's address and port, the server's.
    connection: tuple[str, ...]

    def argv(self, command: Sequence[str]) -> list[str]: ...

    def traffic(self, words: Sequence[str]) -> list[str]: ...

    def run(self, command: Sequence[str], next_step: str) -> str: ...


class Hosts(Topology):
    """Two machines. Nothing of theirs is changed, so nothing is given back."""

    kind: ClassVar[str] = "hosts"
    what: ClassVar[str] = "two machines and the network between them, as it is"
    default_mtu_bytes: ClassVar[int | None] = None
    local_delivery: bool = False  # type: ignore[misc]

    def __init__(self, seats: Mapping[Side, Seat], sender_address: str | None) -> None:
        super().__init__(LinkSettings(), Path())
        self.seats = seats
        self._asked = sender_address

    def __enter__(self) -> "Hosts":
        self._build()
        self._check_workload_user()
        return self

    def _build(self) -> None:
        sender = self._asked or self._address_of_sender()
        device, receiver = self._route("receiver", sender)
        self.addresses = {"sender": sender, "receiver": receiver}
        self.devices = {"sender": self._route("sender", receiver)[0], "receiver": device}
        self._looked = {side: self._look(side) for side in SIDES}
        # Two names of one machine, or containers of it.
        self.local_delivery = len({parts[-1] for parts in self._looked.values()}) == 1

    def _address_of_sender(self) -> str:
        """By which the one reaches the other for ssh, where ssh says so."""
        sender, receiver = self.seats["sender"], self.seats["receiver"]
        said = receiver.connection[:1] if sender.near else sender.connection[2:3]
        try:
            return str(ipaddress.ip_address(said[0]))
        except (IndexError, ValueError):
            raise TopologyError(
                f"{(receiver if sender.near else sender).name}: ssh does not show its address: give the "
                "sender's address on the path to measure with --sender-address"
            ) from None

    def _route(self, side: Side, to: str) -> tuple[str, str]:
        """The device and the address that a side uses towards the other."""
        text = self.seats[side].run(
            ("ip", "-j", "route", "get", to), f"give it a route to {to}, and iproute2"
        )
        try:
            (row,) = json.loads(text)
            return str(row["dev"]), str(ipaddress.ip_address(row["prefsrc"]))
        except (ValueError, KeyError, TypeError):
            raise TopologyError(
                f"{self.seats[side].name}: `ip route get {to}` names no device: {visible(text[:60])}"
            ) from None

    def _look(self, side: Side) -> list[str]:
        seat, device = self.seats[side], self.devices[side]
        parts = seat.run(("sh", "-c", LOOK, "sh", device), "install iproute2 there").split("@@\n")
        if len(parts) != PARTS:
            raise TopologyError(f"{seat.name}: {device}: the output of ip(8) cannot be read: update it")
        return parts

    def _read_devices(self) -> tuple[dict[Side, Link], dict[Side, dict[str, bool | None]]]:
        links = {side: parse_links(parts[0])[0] for side, parts in self._looked.items()}
        features = {side: parse_features(parts[1]) for side, parts in self._looked.items()}
        for side, of_device in features.items():
            if not any(value is not None for value in of_device.values()):
                self.notes.append(NO_ETHTOOL.format(host=self.seats[side].name, device=self.devices[side]))
        return links, features

    def _packet_sockets(self, links: dict[Side, Link]) -> list[dict[str, Any]]:
        return [
            row
            for side in SIDES
            for row in packet_socket_rows(
                side, self._looked[side][3], {links[side].index: links[side].name}, here=False
            )
        ]

    def _device_row(self, side: Side, link: Link, features: dict[str, bool | None]) -> dict[str, Any]:
        row = super()._device_row(side, link, features)
        return {**row, "driver": self._looked[side][2].strip() or row["driver"]}

    def command(self, side: Side, argv: Sequence[str] = ()) -> list[str]:
        """`argv` without its program, which is the host's own traffic."""
        return self.seats[side].traffic(argv[1:])

    def keep(self, name: str) -> Kept:
        raise TopologyError(f"topology: keep: {name}: no namespace was made: leave --keep out")

    def _check_workload_user(self) -> None:
        for seat in self.seats.values():
            status = seat.run((*seat.user.argv(), "cat", "/proc/self/status"), "install util-linux there")
            if left := find_privileges(status):
                raise TopologyError(
                    f"{seat.name}: setpriv: the workload would keep {' '.join(left)}: update util-linux"
                )

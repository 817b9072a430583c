# SPDX-License-Identifier: GPL-2.0-only
"""Network path between two machines that are reached over ssh. copyscope changes no settings of this path."""

import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from copyscope.base.spelling import visible
from copyscope.machine.hosts import Host
from copyscope.machine.topology.card import CARD_SCRIPT, parse_card
from copyscope.machine.topology.links import (
    DeviceRow,
    Link,
    PacketSocketUser,
    packet_socket_rows,
    parse_features,
    parse_links,
)
from copyscope.machine.topology.namespace import (
    TopologyError,
    find_privileges,
)
from copyscope.machine.topology.topology import SIDES, KeptNamespaces, LinkSettings, Side, Topology

# Script that prints facts about network device $1: link, features, driver, packet sockets, card, boot id.
DEVICE_SCRIPT = f"""
ip -j -d link show dev "$1" || exit
echo @@; ethtool -k "$1" 2>/dev/null
echo @@; basename "$(readlink "/sys/class/net/$1/device/driver")"
echo @@; cat /proc/net/packet
echo @@; ({CARD_SCRIPT})
echo @@; cat /proc/sys/kernel/random/boot_id
"""
DEVICE_SCRIPT_PARTS = 6
ETHTOOL_MISSING = "{host}: ethtool is missing, so the offloads of {device} are unknown"


class TwoHosts(Topology):
    """Topology of two machines, whose settings are neither changed nor restored."""

    kind: ClassVar[str] = "hosts"
    description: ClassVar[str] = "two machines and the network between them, as it is"
    default_mtu_bytes: ClassVar[int | None] = None
    local_delivery: bool = False  # type: ignore[misc]

    def __init__(self, hosts: Mapping[Side, Host], sender_address: str | None) -> None:
        super().__init__(LinkSettings(), Path())
        self.hosts = hosts
        self._sender_address = sender_address

    def __enter__(self) -> "TwoHosts":
        self._build()
        self._check_workload_user()
        return self

    def _build(self) -> None:
        sender = self._sender_address or self._address_in_ssh_connection()
        device, receiver = self._route("receiver", sender)
        self.addresses = {"sender": sender, "receiver": receiver}
        self.devices = {"sender": self._route("sender", receiver)[0], "receiver": device}
        self._facts = {side: self._read_facts(side) for side in SIDES}
        # Equal boot ids: two names of one machine, or containers on it.
        self.local_delivery = len({parts[-1] for parts in self._facts.values()}) == 1

    def _address_in_ssh_connection(self) -> str:
        """Return the sender's address in the ssh connection. Raises TopologyError if ssh shows no address."""
        sender, receiver = self.hosts["sender"], self.hosts["receiver"]
        addresses = receiver.connection[:1] if sender.near else sender.connection[2:3]
        try:
            return str(ipaddress.ip_address(addresses[0]))
        except (IndexError, ValueError):
            raise TopologyError(
                f"{(receiver if sender.near else sender).name}: ssh does not show its address; give "
                "the sender's address on the path to measure with --sender-address"
            ) from None

    def _route(self, side: Side, destination: str) -> tuple[str, str]:
        """Return the device and the source address that the machine of `side` uses to reach an address."""
        command = ("ip", "-j", "route", "get", destination)
        text = self.hosts[side].run(command, f"give this host a route to {destination}, and iproute2")
        try:
            (row,) = json.loads(text)
            return str(row["dev"]), str(ipaddress.ip_address(row["prefsrc"]))
        except (ValueError, KeyError, TypeError):
            raise TopologyError(
                f"{self.hosts[side].name}: `ip route get {destination}` names no device: {visible(text[:60])}"
            ) from None

    def _read_facts(self, side: Side) -> list[str]:
        """Run DEVICE_SCRIPT on the machine of `side`, and return the parts of its output."""
        host, device = self.hosts[side], self.devices[side]
        parts = host.run(("sh", "-c", DEVICE_SCRIPT, "sh", device), "install iproute2 there").split("@@\n")
        if len(parts) != DEVICE_SCRIPT_PARTS:
            raise TopologyError(
                f"{host.name}: {device}: the output of ip(8) cannot be parsed; update iproute2"
            )
        return parts

    def _read_devices(self) -> tuple[dict[Side, Link], dict[Side, dict[str, bool | None]]]:
        """Return link and features of each side's device. If ethtool is missing, add a note to the record."""
        links = {side: parse_links(parts[0])[0] for side, parts in self._facts.items()}
        features = {side: parse_features(parts[1]) for side, parts in self._facts.items()}
        for side, device_features in features.items():
            if not any(value is not None for value in device_features.values()):
                self.notes.append(
                    ETHTOOL_MISSING.format(host=self.hosts[side].name, device=self.devices[side])
                )
        return links, features

    def _packet_sockets(self, links: dict[Side, Link]) -> list[PacketSocketUser]:
        return [
            row
            for side in SIDES
            for row in packet_socket_rows(
                side, self._facts[side][3], {links[side].index: links[side].name}, here=False
            )
        ]

    def _device_row(self, side: Side, link: Link, features: dict[str, bool | None]) -> DeviceRow:
        row = super()._device_row(side, link, features)
        _, _, driver, _, card, _ = self._facts[side]
        return replace(row, driver=driver.strip() or row.driver, card=parse_card(card))

    def command(self, side: Side, argv: Sequence[str] = ()) -> list[str]:
        """Return the local command that runs the traffic program, `argv`, on the host of `side`."""
        return self.hosts[side].traffic(argv[1:])

    def keep(self, name: str) -> KeptNamespaces:
        raise TopologyError(f"--keep {name}: two hosts have no namespaces to keep; leave --keep out")

    def _check_workload_user(self) -> None:
        for host in self.hosts.values():
            status = host.run((*host.user.argv(), "cat", "/proc/self/status"), "install util-linux there")
            if privileges := find_privileges(status):
                raise TopologyError(
                    f"{host.name}: setpriv: the workload would keep {' '.join(privileges)}; update util-linux"
                )

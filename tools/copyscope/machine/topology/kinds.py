# SPDX-License-Identifier: GPL-2.0-only
"""Topologies on this machine: two network cards, veth, veth with XDP, loopback."""

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from copyscope.base.spelling import alternatives
from copyscope.machine.topology.card import CARD_COMMAND, parse_card
from copyscope.machine.topology.links import (
    SYS_CLASS_NET,
    BorrowedInterface,
    DeviceRow,
    Link,
    features_to_restore,
    parse_json,
    parse_links,
    read_interfaces,
)
from copyscope.machine.topology.namespace import (
    NamespaceCommand,
    TopologyError,
    run,
    run_together,
)
from copyscope.machine.topology.topology import SIDES, KeptNamespaces, LinkSettings, Side, Topology

# Time in seconds to wait for the carrier (a link may train for 15 s), and for a connection through the cable.
CARRIER_S, CONNECTION_S = 15.0, 5.0
# Time in seconds without a carrier after which a message says so.
SLOW_CARRIER_S = 2.0
MTU_ADVICE = "choose an MTU that both interfaces can carry"
# Python script that connects to a closed port of argv[1] from argv[2] within argv[3] seconds. A refusal
# proves that the other interface was reached.
CONNECT_SCRIPT = """
import socket, sys, time
until = time.monotonic() + float(sys.argv[3])
while time.monotonic() < until:
    try:
        socket.create_connection((sys.argv[1], 9), 1, (sys.argv[2], 0)).close()
    except ConnectionRefusedError:
        sys.exit(0)
    except OSError as error:
        last = error
sys.exit(str(last))
"""


class Nics(Topology):
    """Two network cards joined by a cable. During a run, each card is in a namespace of its own.

    Packets leave the kernel through the sender's card and return through the receiver's card, so that nothing
    forces a copy on the way. Afterwards each interface gets back its name, MTU, offloads, addresses and up
    state. If copyscope is killed, the kernel returns the interfaces to the initial namespace, down and
    without addresses (default_device_exit_net(), net/core/dev.c).
    """

    kind: ClassVar[str] = "nics"
    parameters: ClassVar[str] = "IFA,IFB"
    description: ClassVar[str] = (
        "two NICs connected back to back, each in its own namespace: packets leave the kernel"
    )
    default_mtu_bytes: ClassVar[int | None] = None
    local_delivery: ClassVar[bool] = False
    # Addresses of the benchmarking range (RFC 2544), which are visible on this cable only.
    addresses: Mapping[Side, str] = {"sender": "198.18.0.1", "receiver": "198.18.0.2"}

    def set_parameters(self, parameters: str) -> None:
        """Set the interfaces from `IFA,IFB`, the sender's first. Raises TopologyError for invalid names."""
        names = parameters.split(",")
        if len(names) != 2 or not all(names):
            raise TopologyError(f"--topology nics:{parameters}: name two interfaces, the sender's first")
        for name in names:
            if "/" in name or name in (".", "..") or name.split() != [name] or len(name) > 15:
                raise TopologyError(
                    f"--topology nics:{parameters}: {name!r}: not an interface name; `ip link` lists the "
                    "interfaces"
                )
        if names[0] == names[1]:
            raise TopologyError(
                f"--topology nics:{parameters}: {names[0]}: named twice; name both ends of a cable"
            )
        self.devices = dict(zip(SIDES, names, strict=True))
        self.routes = {
            side: f"198.18.0.0/24 dev {self.devices[side]} proto kernel scope link src {self.addresses[side]}"
            for side in SIDES
        }

    def keep(self, name: str) -> KeptNamespaces:
        raise TopologyError(f"--keep {name}: NICs are given back at the end; leave --keep out")

    def _build(self) -> None:
        """Move the interfaces into namespaces, configure them, and check that a cable joins them."""
        interfaces = read_interfaces(tuple(self.devices[side] for side in SIDES))
        self._before: dict[Side, BorrowedInterface] = dict(zip(SIDES, interfaces, strict=True))
        self.notes += [note for interface in interfaces if (note := interface.note())]
        if self.mtu_bytes is None:
            self.mtu_bytes = min(interface.mtu_bytes for interface in interfaces)
        self._make_namespaces(2)
        for side in SIDES:
            self._cleanup.callback(self._give_back, side)
            move = ("ip", "link", "set", "dev", self.devices[side], "netns", str(self.namespaces[side].pid))
            run(NamespaceCommand(move, "use an interface that can be moved to another namespace"))
        batch = ("ip", "-batch", "-")
        run_together(
            [self._inside(side, batch, MTU_ADVICE, self._bring_up(side), about="mtu") for side in SIDES]
        )
        self._wait_for_carrier()
        self._check_cable()

    def _bring_up(self, side: Side) -> str:
        """Return lines for `ip -batch` that set address, MTU and state of the device on `side`."""
        device = self.devices[side]
        lines = f"link set lo up\naddr add {self.addresses[side]}/24 dev {device}\n"
        if self.mtu_bytes != self._before[side].mtu_bytes:
            lines += f"link set {device} mtu {self.mtu_bytes}\n"
        return f"{lines}link set {device} up\n"

    def _wait_for_carrier(self) -> None:
        """Wait until both interfaces have a carrier. Raises TopologyError after CARRIER_S."""
        began_s, is_reported = time.monotonic(), False
        while sides := [side for side in SIDES if not self._has_carrier(side)]:
            names, waited_s = " and ".join(self.devices[side] for side in sides), time.monotonic() - began_s
            if waited_s > SLOW_CARRIER_S and not is_reported:
                is_reported = True
                print(f"{names}: no carrier yet; waiting up to {CARRIER_S:g} s", file=sys.stderr)
            if waited_s > CARRIER_S:
                raise TopologyError(
                    f"--topology nics: {names}: no carrier within {CARRIER_S:g} s, so they are not cabled"
                    " together; plug the cable"
                )
            time.sleep(0.05)

    def _has_carrier(self, side: Side) -> bool:
        show = ("ip", "-j", "link", "show", "dev", self.devices[side])
        return "LOWER_UP" in parse_json(run(self._inside(side, show, "update iproute2")))[0]["flags"]

    def _check_cable(self) -> None:
        """Raise TopologyError if the interfaces cannot reach each other, which a carrier does not prove."""
        near, far = self.addresses["receiver"], self.addresses["sender"]
        argv = (sys.executable, "-I", "-S", "-c", CONNECT_SCRIPT, far, near, str(CONNECTION_S))
        try:
            run(self._inside("receiver", argv, ""))
        except TopologyError as error:
            reason = str(error).removesuffix("; ").rpartition(": ")[2]
            raise TopologyError(
                f"--topology nics: {self.devices['receiver']} does not reach {self.devices['sender']}"
                f" ({reason}), so the ports are not cabled together; join both ports with one cable"
            ) from None

    def _give_back(self, side: Side) -> None:
        """Restore an interface. Errors are printed and not raised, so that the measurement is not lost."""
        before = self._before[side]
        inside = f"link set {before.name} down\nlink set {before.name} mtu {before.mtu_bytes}\n"
        inside += f"link set {before.name} netns {os.getpid()}\n"
        outside = f"link set {before.name} up\n" if before.up else ""
        outside += before.address_lines()
        by_hand = f"bring {before.name} back by hand"
        commands = [NamespaceCommand(("ip", "-force", "-batch", "-"), by_hand, outside)]
        if not (SYS_CLASS_NET / before.name).exists():  # the interface is still in its namespace
            commands.insert(0, self._inside(side, ("ip", "-force", "-batch", "-"), by_hand, inside))
            self._restore_features(side, before)
        for command in commands:
            try:
                run(command)
            except TopologyError as error:
                print(error, file=sys.stderr)

    def _restore_features(self, side: Side, before: BorrowedInterface) -> None:
        """Restore the offloads of an interface. Errors are printed and not raised."""
        try:
            show = self._inside(side, ("ethtool", "-k", before.name), "update ethtool")
            arguments = features_to_restore(before.features, run(show))
            if arguments:
                run(
                    self._inside(side, ("ethtool", "-K", before.name, *arguments), "set the offloads by hand")
                )
        except TopologyError as error:
            print(error, file=sys.stderr)

    def _device_row(self, side: Side, link: Link, features: dict[str, bool | None]) -> DeviceRow:
        command = self._inside(side, (*CARD_COMMAND, link.name), "check that sh works")
        row = super()._device_row(side, link, features)
        return replace(row, driver=self._before[side].driver, card=parse_card(run(command)))


class Veth(Topology):
    """Two namespaces joined by a pair of virtual Ethernet devices.

    The receiving device hands each skb to the stack through skb_orphan_frags_rx(), so a zero-copy send is
    always copied after all (Documentation/networking/msg_zerocopy.rst, "Loopback").
    """

    kind: ClassVar[str] = "veth"
    description: ClassVar[str] = (
        "two network namespaces, one veth pair; zero-copy sends are always copied here"
    )
    default_mtu_bytes: ClassVar[int] = 1500
    # Addresses of the benchmarking range (RFC 2544), which are visible inside the namespaces only.
    addresses: Mapping[Side, str] = {"sender": "198.18.0.1", "receiver": "198.18.0.2"}
    devices: Mapping[Side, str] = {"sender": "sender0", "receiver": "receiver0"}
    routes: Mapping[Side, str] = {
        "sender": "198.18.0.0/24 dev sender0 proto kernel scope link src 198.18.0.1",
        "receiver": "198.18.0.0/24 dev receiver0 proto kernel scope link src 198.18.0.2",
    }

    def _build(self) -> None:
        """Make two namespaces and a veth pair between them."""
        self._make_namespaces(2)
        receiver = self.namespaces["receiver"]
        # The pair is created inside the sender's namespace, so that no device ever appears on the host.
        pair = (
            f"link add {self.devices['sender']} mtu {self.mtu_bytes} type veth"
            f" peer name {self.devices['receiver']} mtu {self.mtu_bytes} netns {receiver.pid}\n"
        )
        run(self._batch("sender", pair))
        run_together([self._batch(side, self._bring_up(side)) for side in SIDES])

    def _bring_up(self, side: Side) -> str:
        """Return lines for `ip -batch` that set address and state of the device on `side`."""
        device = self.devices[side]
        return f"link set lo up\naddr add {self.addresses[side]}/24 dev {device}\nlink set {device} up\n"

    def _batch(self, side: Side, lines: str) -> NamespaceCommand:
        step = "choose an MTU of 68 to 65535 bytes"
        return self._inside(side, ("ip", "-batch", "-"), step, lines, about="mtu")


class VethXdp(Veth):
    """A veth pair with a native XDP program on the receiving device that passes every packet.

    XDP needs linear writable packets, so the driver copies each skb before the network stack receives it
    (veth_convert_skb_to_xdp_buff()). The notifications of the sender do not report that copy. Only the
    receiving device needs a program, because veth polls (NAPI) on the device that has an XDP program.
    """

    kind: ClassVar[str] = "veth-xdp"
    description: ClassVar[str] = (
        "a veth pair with a native XDP program that passes all; its driver copies, and notifications hide it"
    )

    def _build(self) -> None:
        """Make a veth pair and attach the XDP program. Raises TopologyError if the MTU is too large."""
        super()._build()
        if not self.xdp_object.is_file():
            raise TopologyError(f"--topology {self.kind}: {self.xdp_object} is not built; run `make` first")
        device = self.devices["receiver"]
        load = ("ip", "link", "set", "dev", device, "xdpdrv", "obj", str(self.xdp_object), "sec", "xdp")
        attach = self._inside("receiver", load, "use --topology veth")
        try:
            run(attach)
        except TopologyError:
            if self.settings.mtu_bytes is None:
                raise
            # veth_xdp_set() refuses a program if a packet of the peer's MTU does not fit into a page. With
            # the default MTU it accepts the program, and then max_mtu of the peer is the largest MTU.
            default = ("ip", "link", "set", self.devices["sender"], "mtu", str(self.default_mtu_bytes))
            run(self._inside("sender", default, "use --topology veth"))
            run(attach)
            raise TopologyError(
                f"--topology {self.kind}: MTU {self.mtu_bytes}: XDP packets must fit into a page; choose "
                f"at most {self._link('sender').max_mtu_bytes} bytes, or --topology veth"
            ) from None
        link = self._link("receiver")
        if link.xdp != "native":
            raise TopologyError(
                f"--topology {self.kind}: {device}: the XDP mode is {link.xdp}; use --topology veth"
            )

    def _link(self, side: Side) -> Link:
        show = ("ip", "-j", "-d", "link", "show", "dev", self.devices[side])
        return parse_links(run(self._inside(side, show, "update iproute2")))[0]


class Loopback(Topology):
    """Namespace in which sender and receiver communicate over lo."""

    kind: ClassVar[str] = "loopback"
    description: ClassVar[str] = (
        "one network namespace, its loopback device; zero-copy sends are always copied here"
    )
    default_mtu_bytes: ClassVar[int] = 65536
    addresses: Mapping[Side, str] = {"sender": "127.0.0.1", "receiver": "127.0.0.1"}
    devices: Mapping[Side, str] = {"sender": "lo", "receiver": "lo"}
    routes: Mapping[Side, str] = dict.fromkeys(
        SIDES, "local 127.0.0.1 dev lo table local proto kernel scope host src 127.0.0.1"
    )

    def _build(self) -> None:
        self._make_namespaces(1)
        argv = ("ip", "link", "set", "lo", "mtu", str(self.mtu_bytes), "up")
        run(self._inside("sender", argv, "choose an MTU of 68 to 65536 bytes", about="mtu"))


KINDS: dict[str, type[Topology]] = {kind.kind: kind for kind in (Veth, Loopback, VethXdp, Nics)}
# Values of --topology, as help and messages show them.
TOPOLOGY_CHOICES = tuple(
    f"{kind.kind}:{kind.parameters}" if kind.parameters else kind.kind for kind in KINDS.values()
)


def open_topology(text: str, settings: LinkSettings, xdp_object: Path) -> Topology:
    """Return the topology for a value of --topology, `KIND` or `KIND:PARAMETERS`.

    Nothing changes on the machine until the topology is entered with `with`. Raises TopologyError for an
    unknown kind or wrong parameters.
    """
    kind, _, parameters = text.partition(":")
    if kind not in KINDS:
        raise TopologyError(f"--topology {kind}: unknown topology; choose {alternatives(TOPOLOGY_CHOICES)}")
    topology = KINDS[kind](settings, xdp_object)
    topology.set_parameters(parameters)
    return topology

"""The kind `nics`: two interfaces of this machine with a cable between them."""

import os
import sys
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from copyscope.topology.inspection import Link, parse_json
from copyscope.topology.interface import SYS_CLASS_NET, Interface, read_interfaces, switched
from copyscope.topology.shell import Command, TopologyError, run, run_together
from copyscope.topology.topology import SIDES, Kept, Side, Topology

CARRIER_S = 5.0
MTU = "choose an MTU that both interfaces can carry"
# A connection to a port where nobody listens: the refusal comes back from the other end, or nothing does.
REACH = """
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
    """Two real interfaces, each moved into a namespace of its own for the time of a run.

    The packets leave this kernel through one device and come in through the other, so nothing has to be
    copied on the way. Each interface is given back with the name, MTU, offloads, addresses and up state that
    it had. When we are killed the kernel does it (default_device_exit_net(), net/core/dev.c): the devices
    come back to the first namespace, down, without addresses.
    """

    kind: ClassVar[str] = "nics"
    parameters: ClassVar[str] = "IFA,IFB"
    what: ClassVar[str] = (
        "two NICs connected back to back, each in its own namespace: packets leave the kernel"
    )
    default_mtu_bytes: ClassVar[int | None] = None
    local_delivery: ClassVar[bool] = False
    # The benchmarking range of RFC 2544; visible on that cable only.
    addresses: Mapping[Side, str] = {"sender": "198.18.0.1", "receiver": "198.18.0.2"}

    def take(self, parameters: str) -> None:
        names = parameters.split(",")
        if len(names) != 2 or not all(names):
            raise TopologyError(
                f"topology: nics:{parameters}: name two interfaces, sender first: nics:{self.parameters}"
            )
        for name in names:
            if "/" in name or name in (".", "..") or name.split() != [name] or len(name) > 15:
                raise TopologyError(f"topology: nics: {name!r}: not the name of an interface")
        if names[0] == names[1]:
            raise TopologyError(f"topology: nics: {names[0]}: named twice: both ends of a cable are needed")
        self.devices = dict(zip(SIDES, names, strict=True))
        self.routes = {
            side: f"198.18.0.0/24 dev {self.devices[side]} proto kernel scope link src {self.addresses[side]}"
            for side in SIDES
        }

    def keep(self, name: str) -> Kept:
        raise TopologyError(f"topology: keep: {name}: NICs are given back at the end: leave --keep out")

    def _build(self) -> None:
        found = read_interfaces(tuple(self.devices[side] for side in SIDES))
        self._before: dict[Side, Interface] = dict(zip(SIDES, found, strict=True))
        self.notes += [note for one in found if (note := one.note())]
        if self.mtu_bytes is None:
            self.mtu_bytes = min(one.mtu_bytes for one in found)
        self._hold(2)
        for side in SIDES:
            self._held.callback(self._give_back, side)
            move = ("ip", "link", "set", "dev", self.devices[side], "netns", str(self.namespaces[side].pid))
            run(Command(move, "use an interface that can be moved to another namespace"))
        batch = ("ip", "-batch", "-")
        run_together([self._inside(side, batch, MTU, self._bring_up(side), about="mtu") for side in SIDES])
        self._wait_for_carrier()
        self._reach()

    def _bring_up(self, side: Side) -> str:
        device = self.devices[side]
        lines = f"link set lo up\naddr add {self.addresses[side]}/24 dev {device}\n"
        if self.mtu_bytes != self._before[side].mtu_bytes:
            lines += f"link set {device} mtu {self.mtu_bytes}\n"
        return f"{lines}link set {device} up\n"

    def _wait_for_carrier(self) -> None:
        until = time.monotonic() + CARRIER_S
        while dark := [side for side in SIDES if not self._has_carrier(side)]:
            if time.monotonic() > until:
                names = " and ".join(self.devices[side] for side in dark)
                raise TopologyError(
                    f"topology: nics: {names}: no carrier within {CARRIER_S:g} s, not cabled together:"
                    " plug the cable"
                )
            time.sleep(0.05)

    def _has_carrier(self, side: Side) -> bool:
        show = ("ip", "-j", "link", "show", "dev", self.devices[side])
        return "LOWER_UP" in parse_json(run(self._inside(side, show, "update iproute2")))[0]["flags"]

    def _reach(self) -> None:
        """A carrier alone does not say that it is the other one's."""
        near, far = self.addresses["receiver"], self.addresses["sender"]
        argv = (sys.executable, "-I", "-S", "-c", REACH, far, near, str(CARRIER_S))
        try:
            run(self._inside("receiver", argv, ""))
        except TopologyError as error:
            said = str(error).removesuffix(": ").rpartition(": ")[2]
            raise TopologyError(
                f"topology: nics: {self.devices['receiver']}: it does not reach {self.devices['sender']}"
                f" ({said}), not cabled together: join the two with one cable"
            ) from None

    def _give_back(self, side: Side) -> None:
        """Never raises: what was measured is worth more. What could not be done is said, and how to do it."""
        before = self._before[side]
        inside = f"link set {before.name} down\nlink set {before.name} mtu {before.mtu_bytes}\n"
        inside += f"link set {before.name} netns {os.getpid()}\n"
        outside = f"link set {before.name} up\n" if before.up else ""
        outside += before.address_lines()
        by_hand = f"bring {before.name} back by hand"
        commands = [Command(("ip", "-force", "-batch", "-"), by_hand, outside)]
        if not (SYS_CLASS_NET / before.name).exists():  # it had left
            commands.insert(0, self._inside(side, ("ip", "-force", "-batch", "-"), by_hand, inside))
            self._restore_features(side, before)
        for command in commands:
            try:
                run(command)
            except TopologyError as error:
                print(error, file=sys.stderr)

    def _restore_features(self, side: Side, before: Interface) -> None:
        try:
            words = switched(
                before.features, run(self._inside(side, ("ethtool", "-k", before.name), "update ethtool"))
            )
            if words:
                run(self._inside(side, ("ethtool", "-K", before.name, *words), "set it by hand"))
        except TopologyError as error:
            print(error, file=sys.stderr)

    def _device_row(self, side: Side, link: Link, features: dict[str, bool | None]) -> dict[str, Any]:
        return {**super()._device_row(side, link, features), "driver": self._before[side].driver}

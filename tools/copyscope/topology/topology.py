"""What every kind of topology shares: sides, devices, the traffic's user, its section of the record."""

import os
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from copyscope.topology.inspection import (
    Link,
    device_row,
    packet_socket_rows,
    parse_features,
    parse_links,
    read_sysctls,
)
from copyscope.topology.namespace import Namespace
from copyscope.topology.shell import Command, TopologyError, run, run_together
from copyscope.topology.workload_user import WorkloadUser, find_privileges, invoking_user

Side = Literal["sender", "receiver"]
SIDES: tuple[Side, Side] = ("sender", "receiver")
OFFLOADS = ("tso", "gso", "gro")


@dataclass(frozen=True)
class LinkSettings:
    """What may be chosen about a link; None leaves the kernel's (or the kind's) default.

    congestion is set on the route, which decides for every connection over it, whatever the programs ask for.
    So an unprivileged program gets one that net.ipv4.tcp_allowed_congestion_control keeps from it (cubic, if
    the host's default is another), and nothing is changed on the host.
    """

    mtu_bytes: int | None = None
    tso: bool | None = None
    gso: bool | None = None
    gro: bool | None = None
    congestion: str | None = None

    def offloads(self) -> dict[str, bool]:
        return {name: value for name in OFFLOADS if (value := getattr(self, name)) is not None}


@dataclass(frozen=True)
class Kept:
    """Namespaces that outlive us, and the commands to look around in them and to delete them."""

    names: tuple[str, ...]
    look: tuple[str, ...]
    delete: tuple[str, ...]


class Topology(ABC):
    """A context manager: made on entry, gone on exit. One subclass per kind."""

    kind: ClassVar[str]
    parameters: ClassVar[str] = ""  # what is written behind `kind:`; empty: nothing
    what: ClassVar[str]
    default_mtu_bytes: ClassVar[int | None]  # None: what the devices have
    local_delivery: ClassVar[bool] = True  # the receiving socket gets the sender's packets themselves
    addresses: Mapping[Side, str]
    devices: Mapping[Side, str]
    routes: Mapping[Side, str]  # the route to the other side, as `ip route` shows it

    def __init__(self, settings: LinkSettings, xdp_object: Path) -> None:
        self.settings = settings
        self.xdp_object = xdp_object
        self.notes: list[str] = []  # what a reader of the record should know about this path
        self.mtu_bytes = self.default_mtu_bytes if settings.mtu_bytes is None else settings.mtu_bytes
        self.user: WorkloadUser = invoking_user()
        self.namespaces: dict[Side, Namespace] = {}
        self._held = ExitStack()

    def take(self, parameters: str) -> None:
        """What was written behind `kind:`; raises TopologyError for what cannot be meant."""
        if parameters:
            raise TopologyError(f"topology: {self.kind}:{parameters}: write {self.kind} alone")

    @abstractmethod
    def _build(self) -> None:
        """Make namespaces (through _hold) and links."""

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            raise TopologyError(
                f"topology: {self.kind}: only root can make network namespaces: run it with sudo"
            )
        try:
            self._build()
            self._set_congestion()
            self._set_offloads()
            self._check_workload_user()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove everything that was made; safe to call twice. Programs inside must have ended before."""
        self._held.close()
        self.namespaces.clear()

    def command(self, side: Side, argv: Sequence[str] = ()) -> list[str]:
        """The argv that runs a program on a side as the invoking user, without capabilities."""
        return [*self.namespaces[side].enter(), *self.user.argv(), *argv]

    def keep(self, name: str) -> Kept:
        """Name the namespaces, so that they survive this process, until the returned commands delete them."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
            raise TopologyError(f"topology: keep: {name!r}: not a namespace name: use letters, digits, - _ .")
        sides = self._distinct_sides()
        names = [f"{name}-{side}" if len(sides) > 1 else name for side in sides]
        done: list[str] = []
        try:
            for side, kept in zip(sides, names, strict=True):
                argv = ("ip", "netns", "attach", kept, str(self.namespaces[side].pid))
                run(Command(argv, f"choose another name, or `ip netns delete {kept}` if it is an old one"))
                done.append(kept)
        except TopologyError:
            for kept in done:  # all or nothing: half of a kept pair would be litter
                run(Command(("ip", "netns", "delete", kept), "delete it by hand"))
            raise
        return Kept(
            names=tuple(names),
            look=tuple(f"sudo ip netns exec {shlex.quote(kept)} ip -d addr" for kept in names),
            delete=tuple(f"sudo ip netns delete {shlex.quote(kept)}" for kept in names),
        )

    def sysctls(self, side: Side, names: Sequence[str]) -> dict[str, str | None]:
        """Network sysctls as they are on that side (most are per namespace); None when absent."""
        step = "check that /proc/sys is mounted"
        return read_sysctls(names, lambda command: run(self._inside(side, command, step)))

    def describe(self) -> dict[str, Any]:
        """The record's `topology` section, read back from the kernel and not from what was asked.

        tso and gso are the sending device's, gro the receiving device's: the ones the payload goes through.
        """
        links, features = self._read_devices()
        rows = [self._device_row(side, links[side], features[side]) for side in SIDES]
        return {
            "kind": self.kind,
            "what": self.what,
            "mtu_bytes": links["sender"].mtu_bytes,
            "offloads": {
                "tso": features["sender"]["tso"],
                "gso": features["sender"]["gso"],
                "gro": features["receiver"]["gro"],
            },
            "local_delivery": self.local_delivery,
            "xdp": links["receiver"].xdp,
            "devices": rows,
            "packet_sockets": self._packet_sockets(links),
            "addresses": dict(self.addresses),
            "route_congestion_control": self.settings.congestion,
            "notes": list(self.notes),
        }

    def _packet_sockets(self, links: dict[Side, Link]) -> list[dict[str, Any]]:
        """Who taps every packet here (AF_PACKET, ETH_P_ALL): each makes a zero-copy send a copy."""
        rows: list[dict[str, Any]] = []
        for side in self._distinct_sides():
            listed = Path(f"/proc/{self.namespaces[side].pid}/net/packet").read_text(encoding="ascii")
            rows += packet_socket_rows(side, listed, {links[side].index: links[side].name})
        return rows

    def _device_row(self, side: Side, link: Link, features: dict[str, bool | None]) -> dict[str, Any]:
        return device_row(side, link, features)

    def _distinct_sides(self) -> list[Side]:
        """One side per namespace: both for a pair, the sender for a shared one."""
        shared = self.namespaces["sender"] is self.namespaces["receiver"]
        return ["sender"] if shared else list(SIDES)

    def _hold(self, count: int) -> None:
        """New namespaces, held until close(); they are made at the same time. One is both sides'."""
        made = [self._held.enter_context(Namespace()) for _ in range(count)]
        for namespace in made:
            namespace.wait_ready()
        self.namespaces = {"sender": made[0], "receiver": made[-1]}

    def _inside(
        self, side: Side, argv: Sequence[str], next_step: str, stdin: str = "", *, about: str = ""
    ) -> Command:
        return Command((*self.namespaces[side].enter(), *argv), next_step, stdin, about)

    def _read_devices(self) -> tuple[dict[Side, Link], dict[Side, dict[str, bool | None]]]:
        show = ("ip", "-j", "-d", "link", "show", "dev")
        asked = [self._inside(side, (*show, self.devices[side]), "update iproute2") for side in SIDES]
        for side in SIDES:
            asked.append(self._inside(side, ("ethtool", "-k", self.devices[side]), "update ethtool"))
        answers = run_together(asked)
        links = {side: parse_links(text)[0] for side, text in zip(SIDES, answers[:2], strict=True)}
        return links, dict(zip(SIDES, map(parse_features, answers[2:]), strict=True))

    def _set_congestion(self) -> None:
        if self.settings.congestion is None:
            return
        choose = "choose one of net.ipv4.tcp_available_congestion_control"
        words = f"congctl {self.settings.congestion}"
        argv = {side: f"ip route replace {self.routes[side]} {words}" for side in self._distinct_sides()}
        run_together([self._inside(side, line.split(), choose) for side, line in argv.items()])

    def _set_offloads(self) -> None:
        asked = self.settings.offloads()
        if not asked:
            return
        words = [word for name, value in asked.items() for word in (name, "on" if value else "off")]
        sides = self._distinct_sides()
        switch = {side: ("ethtool", "-K", self.devices[side], *words) for side in sides}
        run_together([self._inside(side, switch[side], "leave that offload as it is") for side in sides])
        # ethtool -K succeeds although a feature stays as it was ("Actual changes: off [requested on]").
        _, features = self._read_devices()
        for side in sides:
            for name, value in asked.items():
                if features[side][name] != value:
                    raise TopologyError(
                        f"topology: {self.kind}: {self.devices[side]}: {name} stays"
                        f" {'off' if value else 'on'} (another offload or XDP decides it): do not set {name}"
                    )

    def _check_workload_user(self) -> None:
        """Refuse a workload that kept privileges: it would not meet the limits that real programs meet."""
        command = Command(tuple(self.command("sender", ("cat", "/proc/self/status"))), "update util-linux")
        left = find_privileges(run(command))
        if left:
            raise TopologyError(
                f"topology: setpriv: the workload would keep {' '.join(left)}: update util-linux"
            )

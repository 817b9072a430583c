# SPDX-License-Identifier: GPL-2.0-only
"""Base class of all topologies, and the `topology` section of the record."""

import os
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Self

from copyscope.machine.topology.links import (
    DeviceRow,
    Link,
    PacketSocketUser,
    device_row,
    packet_socket_rows,
    parse_features,
    parse_links,
    read_sysctls,
)
from copyscope.machine.topology.namespace import (
    Namespace,
    NamespaceCommand,
    TopologyError,
    WorkloadUser,
    find_privileges,
    invoking_user,
    run,
    run_together,
)

Side = Literal["sender", "receiver"]
SIDES: tuple[Side, Side] = ("sender", "receiver")
OFFLOADS = ("tso", "gso", "gro")


@dataclass(frozen=True)
class LinkSettings:
    """Settings of a link. None stands for the default of the kernel or the topology.

    `congestion` is set on the route and applies to every connection over this route, even if
    net.ipv4.tcp_allowed_congestion_control forbids the algorithm to unprivileged programs. The default of the
    host stays unchanged.
    """

    mtu_bytes: int | None = None
    tso: bool | None = None
    gso: bool | None = None
    gro: bool | None = None
    congestion: str | None = None

    def offloads(self) -> dict[str, bool]:
        """Return the offloads to set: True switches an offload on."""
        return {name: value for name in OFFLOADS if (value := getattr(self, name)) is not None}


@dataclass(frozen=True)
class KeptNamespaces:
    """Names of namespaces that stay after copyscope exits, with commands that inspect and delete them."""

    names: tuple[str, ...]
    inspect: tuple[str, ...]
    delete: tuple[str, ...]


@dataclass(frozen=True)
class PathFacts:
    """The `topology` section of the record. The keys are explained in docs/reference/record.md."""

    kind: str
    what: str
    mtu_bytes: int
    offloads: dict[str, bool | None]
    local_delivery: bool
    xdp: str | None
    devices: list[DeviceRow]
    packet_sockets: list[PacketSocketUser]
    addresses: dict[Side, str]
    route_congestion_control: str | None
    notes: list[str]


class Topology(ABC):
    """Network path of a run: a context manager that makes and removes the path. Each kind is a subclass."""

    kind: ClassVar[str]
    parameters: ClassVar[str] = ""  # form of the parameters in --topology KIND:PARAMETERS
    description: ClassVar[str]
    default_mtu_bytes: ClassVar[int | None]  # None: the MTU of the devices stays
    local_delivery: ClassVar[bool] = True  # the sender's packets reach the receiving socket in this kernel
    addresses: Mapping[Side, str]
    devices: Mapping[Side, str]
    routes: Mapping[Side, str]  # route from sender to receiver, and back, as `ip route` shows it

    def __init__(self, settings: LinkSettings, xdp_object: Path) -> None:
        self.settings = settings
        self.xdp_object = xdp_object
        self.notes: list[str] = []  # remarks about this path for the record
        self.mtu_bytes = self.default_mtu_bytes if settings.mtu_bytes is None else settings.mtu_bytes
        self.user: WorkloadUser = invoking_user()
        self.namespaces: dict[Side, Namespace] = {}
        self._cleanup = ExitStack()

    def set_parameters(self, parameters: str) -> None:
        """Set the parameters of --topology KIND:PARAMETERS. Raises TopologyError if they are wrong."""
        if parameters:
            raise TopologyError(
                f"--topology {self.kind}:{parameters}: takes no parameters; write {self.kind} alone"
            )

    @abstractmethod
    def _build(self) -> None:
        """Make the namespaces, with _make_namespaces(), and the links."""

    def __enter__(self) -> Self:
        """Make the namespaces and links, and apply the settings. Raises TopologyError, also if not root."""
        if os.geteuid() != 0:
            raise TopologyError(
                f"--topology {self.kind}: only root can make network namespaces; run copyscope with sudo"
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
        """Remove namespaces and links. Programs in the namespaces must have ended. May be called twice."""
        self._cleanup.close()
        self.namespaces.clear()

    def command(self, side: Side, argv: Sequence[str] = ()) -> list[str]:
        """Return the command that runs `argv` in the namespace of `side`, as the invoking user.

        The program has no capabilities.
        """
        return [*self.namespaces[side].enter(), *self.user.argv(), *argv]

    def keep(self, name: str) -> KeptNamespaces:
        """Name the namespaces, so that they remain until the returned commands delete them."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
            raise TopologyError(f"--keep {name!r}: not a namespace name; use letters, digits, - _ .")
        sides = self._distinct_sides()
        names = [f"{name}-{side}" if len(sides) > 1 else name for side in sides]
        attached: list[str] = []
        try:
            for side, namespace in zip(sides, names, strict=True):
                argv = ("ip", "netns", "attach", namespace, str(self.namespaces[side].pid))
                advice = f"choose another name, or `ip netns delete {namespace}` to remove an old namespace"
                run(NamespaceCommand(argv, advice))
                attached.append(namespace)
        except TopologyError:
            for namespace in attached:  # one namespace of a pair is useless
                run(NamespaceCommand(("ip", "netns", "delete", namespace), "delete the namespace by hand"))
            raise
        return KeptNamespaces(
            names=tuple(names),
            inspect=tuple(f"sudo ip netns exec {shlex.quote(namespace)} ip -d addr" for namespace in names),
            delete=tuple(f"sudo ip netns delete {shlex.quote(namespace)}" for namespace in names),
        )

    def sysctls(self, side: Side, names: Sequence[str]) -> dict[str, str | None]:
        """Return network sysctls in the namespace of `side`, by name. A missing sysctl is None."""
        step = "check that /proc/sys is mounted"
        return read_sysctls(names, lambda command: run(self._inside(side, command, step)))

    def describe(self) -> PathFacts:
        """Return the `topology` section of the record, with the values that the kernel reports.

        tso and gso are states of the sending device; gro is the state of the receiving device.
        """
        links, features = self._read_devices()
        rows = [self._device_row(side, links[side], features[side]) for side in SIDES]
        return PathFacts(
            kind=self.kind,
            what=self.description,
            mtu_bytes=links["sender"].mtu_bytes,
            offloads={
                "tso": features["sender"]["tso"],
                "gso": features["sender"]["gso"],
                "gro": features["receiver"]["gro"],
            },
            local_delivery=self.local_delivery,
            xdp=links["receiver"].xdp,
            devices=rows,
            packet_sockets=self._packet_sockets(links),
            addresses=dict(self.addresses),
            route_congestion_control=self.settings.congestion,
            notes=list(self.notes),
        )

    def _packet_sockets(self, links: dict[Side, Link]) -> list[PacketSocketUser]:
        """Return the AF_PACKET sockets that receive all packets, because such sockets force copies."""
        rows: list[PacketSocketUser] = []
        for side in self._distinct_sides():
            text = Path(f"/proc/{self.namespaces[side].pid}/net/packet").read_text(encoding="ascii")
            rows += packet_socket_rows(side, text, {links[side].index: links[side].name})
        return rows

    def _device_row(self, side: Side, link: Link, features: dict[str, bool | None]) -> DeviceRow:
        return device_row(side, link, features)

    def _distinct_sides(self) -> list[Side]:
        """Return one side per namespace: only the sender if sender and receiver share a namespace."""
        shared = self.namespaces["sender"] is self.namespaces["receiver"]
        return ["sender"] if shared else list(SIDES)

    def _make_namespaces(self, count: int) -> None:
        """Make one namespace for sender and receiver, or two. The namespaces exist until close()."""
        namespaces = [self._cleanup.enter_context(Namespace()) for _ in range(count)]
        for namespace in namespaces:
            namespace.wait_ready()
        self.namespaces = {"sender": namespaces[0], "receiver": namespaces[-1]}

    def _inside(
        self, side: Side, argv: Sequence[str], next_step: str, stdin: str = "", *, about: str = ""
    ) -> NamespaceCommand:
        return NamespaceCommand((*self.namespaces[side].enter(), *argv), next_step, stdin, about)

    def _read_devices(self) -> tuple[dict[Side, Link], dict[Side, dict[str, bool | None]]]:
        """Return the link and the features of each side's device."""
        show = ("ip", "-j", "-d", "link", "show", "dev")
        commands = [self._inside(side, (*show, self.devices[side]), "update iproute2") for side in SIDES]
        for side in SIDES:
            commands.append(self._inside(side, ("ethtool", "-k", self.devices[side]), "update ethtool"))
        outputs = run_together(commands)
        links = {side: parse_links(text)[0] for side, text in zip(SIDES, outputs[:2], strict=True)}
        return links, dict(zip(SIDES, map(parse_features, outputs[2:]), strict=True))

    def _set_congestion(self) -> None:
        """Set the congestion control on the routes of all namespaces."""
        if self.settings.congestion is None:
            return
        advice = "choose one that net.ipv4.tcp_available_congestion_control lists"
        option = f"congctl {self.settings.congestion}"
        lines = {side: f"ip route replace {self.routes[side]} {option}" for side in self._distinct_sides()}
        run_together([self._inside(side, line.split(), advice) for side, line in lines.items()])

    def _set_offloads(self) -> None:
        """Set the offloads of both devices. Raises TopologyError if an offload does not change."""
        offloads = self.settings.offloads()
        if not offloads:
            return
        arguments = [word for name, value in offloads.items() for word in (name, "on" if value else "off")]
        sides = self._distinct_sides()
        argv = {side: ("ethtool", "-K", self.devices[side], *arguments) for side in sides}
        run_together([self._inside(side, argv[side], "leave this offload unchanged") for side in sides])
        # ethtool -K also succeeds if a feature does not change ("Actual changes: off [requested on]").
        _, features = self._read_devices()
        for side in sides:
            for name, value in offloads.items():
                if features[side][name] != value:
                    raise TopologyError(
                        f"--topology {self.kind}: {self.devices[side]}: {name} stays"
                        f" {'off' if value else 'on'} (because of another offload or XDP); leave --{name} out"
                    )

    def _check_workload_user(self) -> None:
        """Raise TopologyError if the workload would keep privileges, because limits would not apply then."""
        command = NamespaceCommand(
            tuple(self.command("sender", ("cat", "/proc/self/status"))), "update util-linux"
        )
        privileges = find_privileges(run(command))
        if privileges:
            raise TopologyError(f"setpriv: the workload would keep {' '.join(privileges)}; update util-linux")

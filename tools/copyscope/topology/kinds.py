"""The kinds of topology: one class and one row in KINDS each."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from copyscope.topology.inspection import Link, parse_links
from copyscope.topology.nics import Nics
from copyscope.topology.shell import Command, TopologyError, run, run_together
from copyscope.topology.topology import SIDES, LinkSettings, Side, Topology


class Veth(Topology):
    """Two namespaces joined by a pair of virtual Ethernet devices.

    The receiving device hands each skb to the stack through skb_orphan_frags_rx(), so a zero-copy send is
    always copied after all (Documentation/networking/msg_zerocopy.rst, "Loopback").
    """

    kind: ClassVar[str] = "veth"
    what: ClassVar[str] = "two network namespaces, one veth pair; zero-copy sends are always copied here"
    default_mtu_bytes: ClassVar[int] = 1500
    # The benchmarking range of RFC 2544; visible inside the anonymous namespaces only.
    addresses: Mapping[Side, str] = {"sender": "198.18.0.1", "receiver": "198.18.0.2"}
    devices: Mapping[Side, str] = {"sender": "sender0", "receiver": "receiver0"}
    routes: Mapping[Side, str] = {
        "sender": "198.18.0.0/24 dev sender0 proto kernel scope link src 198.18.0.1",
        "receiver": "198.18.0.0/24 dev receiver0 proto kernel scope link src 198.18.0.2",
    }

    def _build(self) -> None:
        self._hold(2)
        receiver = self.namespaces["receiver"]
        # The pair is created from inside the sender's namespace: no device ever appears on the host.
        pair = (
            f"link add {self.devices['sender']} mtu {self.mtu_bytes} type veth"
            f" peer name {self.devices['receiver']} mtu {self.mtu_bytes} netns {receiver.pid}\n"
        )
        run(self._batch("sender", pair))
        run_together([self._batch(side, self._bring_up(side)) for side in SIDES])

    def _bring_up(self, side: Side) -> str:
        device = self.devices[side]
        return f"link set lo up\naddr add {self.addresses[side]}/24 dev {device}\nlink set {device} up\n"

    def _batch(self, side: Side, lines: str) -> Command:
        step = "choose an MTU of 68 to 65535 bytes"
        return self._inside(side, ("ip", "-batch", "-"), step, lines, about="mtu")


class VethXdp(Veth):
    """As veth, with a native XDP program on the receiving device that passes every packet.

    XDP needs linear writable packets, so the driver copies each skb (veth_convert_skb_to_xdp_buff()) before
    the stack sees it: the sender's completions say "zero copy" although each byte was copied, silently.
    The sender's own device needs no program: veth polls (NAPI) on the end that has one.
    """

    kind: ClassVar[str] = "veth-xdp"
    what: ClassVar[str] = (
        "a veth pair with a pass-all native XDP program; its driver copies, completion notices do not say so"
    )

    def _build(self) -> None:
        super()._build()
        if not self.xdp_object.is_file():
            raise TopologyError(f"topology: {self.kind}: {self.xdp_object}: not there: run `make` first")
        device = self.devices["receiver"]
        load = ("ip", "link", "set", "dev", device, "xdpdrv", "obj", str(self.xdp_object), "sec", "xdp")
        attach = self._inside("receiver", load, "use kind veth")
        try:
            run(attach)
        except TopologyError:
            if self.settings.mtu_bytes is None:
                raise
            # veth_xdp_set() refuses when a packet of the peer's MTU does not fit in a page with its headroom.
            # With its default it takes the program, and the peer's max_mtu is what would have fitted.
            default = ("ip", "link", "set", self.devices["sender"], "mtu", str(self.default_mtu_bytes))
            run(self._inside("sender", default, "use kind veth"))
            run(attach)
            raise TopologyError(
                f"topology: {self.kind}: an MTU of {self.mtu_bytes}: a packet for XDP must fit into a page: "
                f"at most {self._link('sender').max_mtu_bytes} bytes, or kind veth"
            ) from None
        link = self._link("receiver")
        if link.xdp != "native":
            raise TopologyError(f"topology: {self.kind}: {device}: XDP mode is {link.xdp}: use kind veth")

    def _link(self, side: Side) -> Link:
        show = ("ip", "-j", "-d", "link", "show", "dev", self.devices[side])
        return parse_links(run(self._inside(side, show, "update iproute2")))[0]


class Loopback(Topology):
    """One namespace; both ends talk over lo."""

    kind: ClassVar[str] = "loopback"
    what: ClassVar[str] = "one network namespace, its loopback device; zero-copy sends are always copied here"
    default_mtu_bytes: ClassVar[int] = 65536
    addresses: Mapping[Side, str] = {"sender": "127.0.0.1", "receiver": "127.0.0.1"}
    devices: Mapping[Side, str] = {"sender": "lo", "receiver": "lo"}
    routes: Mapping[Side, str] = dict.fromkeys(
        SIDES, "local 127.0.0.1 dev lo table local proto kernel scope host src 127.0.0.1"
    )

    def _build(self) -> None:
        self._hold(1)
        line = ("ip", "link", "set", "lo", "mtu", str(self.mtu_bytes), "up")
        run(self._inside("sender", line, "choose an MTU of 68 to 65536 bytes", about="mtu"))


KINDS: dict[str, type[Topology]] = {kind.kind: kind for kind in (Veth, Loopback, VethXdp, Nics)}
# As they are written on the command line.
WRITTEN = tuple(f"{kind.kind}:{kind.parameters}" if kind.parameters else kind.kind for kind in KINDS.values())


def open_topology(written: str, settings: LinkSettings, xdp_object: Path) -> Topology:
    """A topology to be entered with `with`, from `kind` or `kind:parameters`; nothing is touched before.

    Raises TopologyError for a kind that does not exist and for parameters that cannot be meant.
    """
    kind, _, parameters = written.partition(":")
    if kind not in KINDS:
        raise TopologyError(f"topology: {kind}: no such kind: one of {', '.join(WRITTEN)}")
    made = KINDS[kind](settings, xdp_object)
    made.take(parameters)
    return made

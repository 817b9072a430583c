"""Why zero-copy sends were copied after all, as far as the record of the path can tell."""

from copyscope.record.derived import Cause
from copyscope.record.program.raw import ProgramTopology
from copyscope.record.raw import PacketSocket, TopologyBase

# a socket of this protocol sees every outgoing packet (net/core/dev.c, dev_queue_xmit_nit)
ETH_P_ALL = frozenset(("all", "*", "eth_p_all", "3", "0x3", "0003", "0x0003"))


OTHER_FORM = Cause(
    "silent_copy",
    "the kernel copied packets into another form on the way, and the completion flag does not tell",
)
NATIVE_XDP = Cause(
    "xdp_native",
    "native XDP on the receiver's device: the driver copies every packet into a page of its own, and the "
    "completion flag does not tell",
)
NO_GATHER = (
    "{} cannot gather from several pages (scatter-gather is off), so the bytes were copied at the send call; "
    "turn it on with ethtool -K"
)
NO_DEVICE = (
    "cause not known: its device was not seen; a UDP socket that is not connected names its receiver in each "
    "message only: connect(2) it, or see what `ip route get RECEIVER` says"
)
NOTHING_FOUND = (
    "cause not known: no XDP, packet socket, local delivery or device without scatter-gather was found on "
    "this path"
)


def find_cause(path: TopologyBase, copied: int, silent_bytes: int) -> Cause | None:
    """The first cause that explains it; None when nothing was copied.

    A silent copy first (its completions say nothing, so nothing else explains it), then what nothing else
    could change: a device that has the send call itself copy, local delivery, and of what may go away a
    packet socket (which costs a copy even towards a real device).
    """
    if silent_bytes > 0:
        return NATIVE_XDP if path.xdp == "native" else OTHER_FORM
    if copied <= 0:
        return None
    device, listener, local = device_without_gather(path), _listener(path), _local(path)
    if device is not None:
        return Cause("no_scatter_gather", NO_GATHER.format(device))
    if local is not None:
        return Cause("local_delivery", local)
    if listener is not None:
        return Cause("packet_socket", f"{listener}: each packet is copied for it; stop it and run again")
    return Cause("unknown", NOTHING_FOUND if path.devices else NO_DEVICE)


def is_tap(socket: PacketSocket, path: TopologyBase) -> bool:
    """Whether a packet socket costs the sender a copy.

    One of a single protocol does not see outgoing packets, and one on another host's end sees bytes from the
    wire.
    """
    if socket.side == "target" and socket.device not in ("any", *(device.name for device in path.devices)):
        return False
    near = socket.side in ("sender", "target") or path.local_delivery
    return near and str(socket.protocol).lower() in ETH_P_ALL


def device_without_gather(path: TopologyBase) -> str | None:
    """The sender's device that has no scatter-gather: there MSG_ZEROCOPY copies inside the send call."""
    for device in path.devices:
        if device.side in ("sender", "target") and device.features.get("scatter_gather") is False:
            return device.name
    return None


def _local(path: TopologyBase) -> str | None:
    """A packet socket on such a path is named, but to stop it would change nothing."""
    listener = _listener(path)
    if path.local_delivery:
        text = f"local delivery over {path.kind}; this path cannot show a gain"
        return text if listener is None else f"{text}, with or without {listener}"
    peers = path.peers if isinstance(path, ProgramTopology) else []
    near = sum(bool(peer.local) for peer in peers)
    text = f"local delivery to {near} of its {len(peers)} peers"
    return (text if listener is None else f"{text}, and {listener}, which gets a copy") if near else None


def _listener(path: TopologyBase) -> str | None:
    """Who holds a packet socket on the path, and where."""
    tap = next((s for s in path.packet_sockets if is_tap(s, path)), None)
    if tap is None:
        return None
    owner = "owner not visible"
    if tap.pid is not None:
        owner = f"{tap.comm or 'unknown program'}, pid {tap.pid}"
    return f"a packet socket on {tap.device or 'every device'} ({owner})"

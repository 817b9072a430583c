"""What became of the zero-copy sends, and why they were copied after all. Pure.

The caller of the copy says why; the path says on whose device.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from copyscope.ledger import attribution
from copyscope.ledger.limit import threads_of
from copyscope.ledger.rows import cell
from copyscope.ledger.sends import Sends, sends_of, why_no_completions
from copyscope.ledger.share import FEWEST_SAMPLES, percent
from copyscope.record.derived import AccountRow, Cause, Zerocopy
from copyscope.record.measured import Device, Measured, PacketSocket, Topology
from copyscope.record.segments import measured, wall_ns, why_no_ledger, zerocopy_total
from copyscope.taxonomy.callers import CAUSES


def zerocopy_of(raw: Measured, ledger: Sequence[AccountRow]) -> Zerocopy | None:
    """Of a strategy that sends so, or of a program that did; None of others."""
    segments = measured(raw.run.segments)
    sent = sends_of(raw)
    if not sent.zerocopy and (raw.target is not None or zerocopy_total(segments, "sends") is None):
        return None
    silent = cell(ledger, "silent") or 0
    cause = find_cause(raw, sent.copied, silent)
    if raw.target is None:
        return _of_own(raw, sent, silent, sends=sent.zerocopy, cause=cause)
    blind = None if sent.completions else why_no_completions(raw.hooks)
    return Zerocopy(
        sends=sent.zerocopy,
        bytes_sent=sent.zerocopy_bytes,
        completions=None if blind else sent.completions,
        copied=None if blind else sent.copied,
        notifications=None if blind else sent.notifications,
        unseen=None if blind else sent.unseen,
        untold=sent.untold,
        reason=blind,
        cause=cause,
    )


def _of_own(raw: Measured, sent: Sends, silent: int, **known: Any) -> Zerocopy:
    """Its sender keeps more books. `bytes_silent` and `bytes_zero_copy` are of the ledger segments."""
    segments = measured(raw.run.segments)
    made = [s.sender.zerocopy for s in segments if s.sender.zerocopy]
    absent = why_no_ledger(raw.run)
    waits = [(one.waits, one.wait_ns) for one in made if one.waits is not None and one.wait_ns is not None]
    waited: dict[str, Any] = {}
    if len(waits) == len(made):
        share = sum(ns for _, ns in waits) / (wall_ns(segments) * threads_of(raw.asked, "sender"))
        waited = {"waits": sum(count for count, _ in waits), "waiting_share": share}
    return Zerocopy(
        **known,
        bytes_sent=sent.zerocopy_bytes,
        completions=sent.completions,
        copied=sent.copied,
        notifications=sent.notifications,
        bytes_copied=sent.copied_bytes,
        bytes_silent=None if absent else silent,
        bytes_zero_copy=None if absent else max(0, sends_of(raw, "ledger").uncopied_bytes - silent),
        enobufs=zerocopy_total(segments, "enobufs"),
        max_in_flight=max(one.max_in_flight for one in made),
        **waited,
    )


# a socket of this protocol sees every outgoing packet (net/core/dev.c, dev_queue_xmit_nit)
ETH_P_ALL = frozenset(("all", "*", "eth_p_all", "3", "0x3", "0003", "0x0003"))
# Of the samples of a copy; fewer are strays.
WORTH_A_WORD = 0.05

LOCAL = "local_delivery"
OTHER_FORM = Cause(
    "silent_copy",
    "the kernel copied packets into another form on the way, and the completion flag does not show it",
)
NATIVE_XDP = Cause(
    "xdp_native",
    "native XDP on the receiver's device: the driver copies every packet into a page of its own, and the "
    "completion flag does not show it",
)
AT_CALL = Cause(
    "at_call",
    "copied in the send call: for UDP the kernel sends pages by reference only if the device has "
    "scatter-gather and checksum offload, and a message is one packet",
)
NO_DEVICE = (
    "cause not known: its device was not seen; an unconnected UDP socket names its receiver only in each "
    "message: connect(2) it, or see what `ip route get RECEIVER` prints"
)
NOTHING_FOUND = (
    "cause not known: no XDP, packet socket, local delivery or device without scatter-gather or checksum "
    "offload was found on this path, and no sample shows what asked for the copy"
)
# Drivers that encrypt in place, after skb_cow_data() (drivers/net/wireguard/send.c, drivers/net/macsec.c).
ENCRYPTING = ("wireguard", "macsec")
ENCRYPTS = "encrypts packets in place, so the kernel copies them first"
# What needs no name of this path.
SENTENCES = {
    "vhost": "the packets go to a virtual machine (vhost), which gets a copy",
    "xdp": "an XDP program on a device that receives them: each packet is copied for it",
    "bridge": "a bridge on the way copies what it forwards",
    "rewritten": "something on the way writes into the packets (IPsec, WireGuard, netfilter or tc), so the "
    "kernel copies them first",
    "timestamps": "each packet is returned with its time stamp (SO_TIMESTAMPING), as a copy",
}


def find_cause(raw: Measured, copied: int, silent_bytes: int) -> Cause | None:
    """What explains it; None when nothing was copied. The configuration only where no sample says who had
    the copy made, and then as what is likely."""
    if copied <= 0 and silent_bytes <= 0:
        return None
    accounts = [name for name, much in (("deferred", copied), ("silent", silent_bytes)) if much > 0]
    path, seen = raw.topology, attribution.callers(raw, accounts)
    found = _by_callers(path, seen)
    if found is not None:
        return found
    if silent_bytes > 0:
        return NATIVE_XDP if path.xdp == "native" else OTHER_FORM
    if attribution.at_call(raw):
        return AT_CALL
    function = next((name for name, _ in seen.most_common(1)), None)
    if function is not None and function not in CAUSES:
        return Cause("unknown", f"cause not known: the kernel copied them for {function}()")
    return _suggested(path, certain=raw.target is None)


def _by_callers(path: Topology, seen: Counter[str]) -> Cause | None:
    """What most of the samples say. Packets that others get as well are copied without a tap, too."""
    codes: Counter[str] = Counter()
    for function, samples in seen.items():
        codes[CAUSES.get(function, "unknown")] += samples
    least = WORTH_A_WORD * codes.total()
    known = {code: n for code, n in codes.most_common() if code != "unknown" and n >= least}
    if not known:
        return None
    main = next((code for code in known if code != "packet_socket"), "packet_socket")
    # Few of the sender's own samples may miss what is done for the receiver.
    if main == "packet_socket" and codes.total() < FEWEST_SAMPLES and _local(path) is not None:
        return None
    cause = _cause(main, path)
    if main != "packet_socket" and "packet_socket" in known:
        return _beside(cause, _listener(path) or "a packet socket")
    other = next((code for code in known if code != main), None)
    if other is None:
        return cause
    share = percent(known[other] / codes.total())
    return Cause(cause.code, f"{cause.sentence}; {share} of it: {_cause(other, path).sentence}")


def _cause(code: str, path: Topology) -> Cause:
    """In words, with what the path says of it."""
    if code in ("local_delivery", "received"):
        local = _local(path)
        return Cause(code, _not_seen_as_local(code, path)) if local is None else Cause(LOCAL, local)
    if code == "no_offload":
        return Cause(code, _cannot(device_without_offload(path)))
    if code == "packet_socket":
        listener = _listener(path) or "a packet socket, owner not found (`ss -0p` lists them)"
        return Cause(code, f"{listener}: each packet is copied for it; stop it and run again")
    if code == "xdp" and path.xdp == "native":
        return NATIVE_XDP
    if code == "tun":
        names = [device.name for device in path.devices if device.driver in ("tun", "tap", "macvtap")]
        where = f" ({', '.join(names)})" if names else ""
        text = f"a program or a virtual machine takes the packets from a tun or tap device{where}, as a copy"
        return Cause(code, text)
    return Cause(code, SENTENCES[code])


def _beside(cause: Cause, listener: str) -> Cause:
    """To stop the packet socket would change nothing."""
    alone = cause.sentence.endswith("cannot show a gain")
    joined = f", with or without {listener}" if alone else f", and {listener}, which gets a copy"
    return Cause(cause.code, cause.sentence + joined)


def _suggested(path: Topology, *, certain: bool) -> Cause:
    """By the configuration alone. certain: both ends are our own, and so is what is between them."""
    device, local, listener = device_without_offload(path), _local(path), _listener(path)
    if device is not None:
        return Cause("no_offload", f"likely {_cannot(device)}")
    if (cipher := device_that_encrypts(path)) is not None:
        return Cause("rewritten", f"likely {cipher.name} {ENCRYPTS}")
    if local is not None:
        cause = Cause("local_delivery", local if certain else f"likely {local}")
        return cause if listener is None else _beside(cause, listener)
    if listener is not None:
        return Cause("packet_socket", f"likely {_cause('packet_socket', path).sentence}")
    return Cause("unknown", NOTHING_FOUND if path.devices else NO_DEVICE)


def is_tap(socket: PacketSocket, path: Topology) -> bool:
    """Whether a packet socket costs the sender a copy.

    One of a single protocol does not see outgoing packets, and one on another host's end sees bytes from the
    wire.
    """
    if socket.side == "target" and socket.device not in ("any", *(device.name for device in path.devices)):
        return False
    near = socket.side in ("sender", "target") or path.local_delivery
    return near and str(socket.protocol).lower() in ETH_P_ALL


def device_without_offload(path: Topology) -> Device | None:
    """The sender's device for which the kernel makes packets that refer to pages into packets that do not."""
    for device in path.devices:
        lacks = False in (device.features.get("scatter_gather"), device.features.get("tx_checksum"))
        if device.side in ("sender", "target") and lacks:
            return device
    return None


def device_that_encrypts(path: Topology) -> Device | None:
    """It works on the time of the kernel's own threads, of which no sample is of this run."""
    return next((device for device in path.devices if device.driver in ENCRYPTING), None)


def what_it_lacks(device: Device) -> str:
    """In words."""
    if device.features.get("scatter_gather") is False:
        return "has no scatter-gather"
    return "has no checksum offload"


def _cannot(device: Device | None) -> str:
    """Why packets are cut and copied before they leave."""
    if device is None:
        return (
            "a device on the way has no scatter-gather or no checksum offload, so the "
            "kernel copies packets before they leave"
        )
    does = f"{device.name} {what_it_lacks(device)}, so the kernel copies packets before they leave"
    if device.driver == "tun":
        return f"{does}; its program can change that (TUNSETOFFLOAD)"
    return f"{does}; turn it on with ethtool -K {device.name} sg on tx on"


def _local(path: Topology) -> str | None:
    """Where the path says who of the peers is here."""
    if path.local_delivery:
        return f"local delivery over {path.kind}; this path cannot show a gain"
    peers = path.peers
    near = sum(bool(peer.local) for peer in peers)
    return f"local delivery to {near} of its {len(peers)} peers" if near else None


def _not_seen_as_local(code: str, path: Topology) -> str:
    """Of a path on which nobody was found on this machine."""
    if code == "received":
        return (
            f"a device of this machine received what went out over {path.kind}: before 6.17 the kernel "
            "copies there even what it forwards, from then on for a packet socket"
        )
    return f"local delivery: a socket of this machine received what went out over {path.kind}"


def _listener(path: Topology) -> str | None:
    """Who holds a packet socket on the path, and where."""
    tap = next((s for s in path.packet_sockets if is_tap(s, path)), None)
    if tap is None:
        return None
    owner = "owner not visible"
    if tap.pid is not None:
        owner = f"{tap.comm or 'unknown program'}, pid {tap.pid}"
    return f"a packet socket on {tap.device or 'every device'} ({owner})"

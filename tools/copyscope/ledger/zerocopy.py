# SPDX-License-Identifier: GPL-2.0-only
"""Zero-copy sends: how many were copied after all, and why. Pure.

The kernel function that needed the copy tells the cause, and the network path tells the device.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import structs

from copyscope.ledger import attribution
from copyscope.ledger.rows import account_bytes
from copyscope.ledger.sends import SendTotals, send_totals, why_no_completions, why_place_unknown
from copyscope.ledger.share import SAMPLES_MIN, percent
from copyscope.ledger.verdict import worker_threads
from copyscope.record.derived import AccountRow, Cause, Zerocopy
from copyscope.record.measured import Device, Measured, PacketSocket, TopologySection
from copyscope.record.segments import measured, wall_ns, why_no_ledger, zerocopy_sum
from copyscope.taxonomy.callers import CAUSES


def zerocopy_of(raw: Measured, ledger: Sequence[AccountRow]) -> Zerocopy | None:
    """Return the section `zerocopy`, or None if the strategy or watched program does not use zero-copy."""
    sent = send_totals(raw)
    silent_bytes = account_bytes(ledger, "silent") or 0
    if raw.target is None:
        segments = measured(raw.run.segments)
        if not sent.zerocopy and zerocopy_sum(segments, lambda zerocopy: zerocopy.sends) is None:
            return None
        return _own_zerocopy(raw, sent, silent_bytes, find_cause(raw, sent, silent_bytes))
    if not sent.zerocopy:
        return None
    reason = None if sent.completions else why_no_completions(raw.hooks)
    return Zerocopy(
        sends=sent.zerocopy,
        bytes_sent=sent.zerocopy_bytes,
        completions=None if reason else sent.completions,
        copied=None if reason else sent.copied,
        notifications=None if reason else sent.notifications,
        unseen=None if reason else sent.unseen,
        untold=sent.untold,
        reason=reason,
        cause=find_cause(raw, sent, silent_bytes),
    )


def _own_zerocopy(raw: Measured, sent: SendTotals, silent_bytes: int, cause: Cause | None) -> Zerocopy:
    """Return the section `zerocopy` of our own sender, which keeps more totals than a watched program.

    silent_bytes: bytes that were copied silently in the ledger segments
    """
    segments = measured(raw.run.segments)
    totals = [s.sender.zerocopy for s in segments if s.sender.zerocopy]
    no_ledger = why_no_ledger(raw.run)
    zerocopy = Zerocopy(
        sends=sent.zerocopy,
        bytes_sent=sent.zerocopy_bytes,
        completions=sent.completions,
        copied=sent.copied,
        notifications=sent.notifications,
        cause=cause,
        bytes_copied=sent.copied_bytes,
        bytes_silent=None if no_ledger else silent_bytes,
        bytes_zero_copy=None
        if no_ledger
        else max(0, send_totals(raw, "ledger").uncopied_bytes - silent_bytes),
        enobufs=zerocopy_sum(segments, lambda zerocopy: zerocopy.enobufs),
        max_in_flight=max(row.max_in_flight for row in totals),
    )
    waits = [row.waits for row in totals if row.waits is not None]
    waits_ns = [row.wait_ns for row in totals if row.wait_ns is not None]
    if min(len(waits), len(waits_ns)) < len(totals):
        return zerocopy
    threads_ns = wall_ns(segments) * worker_threads(raw.asked, "sender")
    return structs.replace(zerocopy, waits=sum(waits), waiting_share=sum(waits_ns) / threads_ns)


# A packet socket of one of these protocols sees every outgoing packet (net/core/dev.c, dev_queue_xmit_nit).
ETH_P_ALL = frozenset(("all", "*", "eth_p_all", "3", "0x3", "0003", "0x0003"))
# Minimum fraction (0..1) of a copy's samples for which a cause is mentioned. A smaller part may be stray
# samples.
CAUSE_SHARE_MIN = 0.05

# Code of the cause "the receiver is on the sender's machine".
LOCAL = "local_delivery"
REBUILT_PACKETS = Cause(
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
    "copied in the send call: TCP sends pages by reference only if its route has scatter-gather, UDP only if "
    "the device has scatter-gather and checksum offload and a message is one packet",
)
NO_DEVICE = (
    "cause not known: the sending device was not seen, because an unconnected UDP socket names its receiver "
    "only in each message; connect(2) the socket, or see what `ip route get RECEIVER` prints"
)
NO_CAUSE = (
    "cause not known: no XDP, packet socket, local delivery or device without scatter-gather or checksum "
    "offload was found on this path, and no sample shows what needed the copy"
)
# Drivers that encrypt in place, after skb_cow_data() (drivers/net/wireguard/send.c, drivers/net/macsec.c).
ENCRYPTING = ("wireguard", "macsec")
ENCRYPTS = "{device} encrypts packets in place, so the kernel copies them first"
# Code of a cause that names no device or program of the path -> sentence.
SENTENCES = {
    "vhost": "the packets go to a virtual machine (vhost), which gets a copy",
    "xdp": "each packet is copied for an XDP program on the device that receives the packets",
    "bridge": "a bridge on the way copies the packets that it forwards",
    "rewritten": "something on the way writes into the packets (IPsec, WireGuard, netfilter or tc), so the "
    "kernel copies the packets first",
    "timestamps": "each packet is returned with its time stamp (SO_TIMESTAMPING), as a copy",
}


def find_cause(raw: Measured, sent: SendTotals, silent_bytes: int) -> Cause | None:
    """Return why zero-copy sends were copied, or None if nothing was copied.

    The socket knows which sends it copied in the call. For every other send, samples of the copies show the
    cause. Without such samples, the configuration of the path suggests a likely cause.

    sent: totals of the sends
    silent_bytes: bytes that were copied without a completion that reports the copy
    """
    if sent.copied <= 0 and silent_bytes <= 0:
        return None
    if 2 * sent.copied_in_call > sent.copied:
        return AT_CALL
    copied = {"deferred": sent.copied, "silent": silent_bytes}
    accounts = [account for account, amount in copied.items() if amount > 0]
    path, callers = raw.topology, attribution.samples_by_caller(raw, accounts)
    cause = _sampled_cause(path, callers)
    if cause is None and silent_bytes > 0:
        cause = NATIVE_XDP if path.xdp == "native" else REBUILT_PACKETS
    if cause is None and attribution.copied_in_call(raw):
        cause = AT_CALL
    if cause is not None:
        return cause
    if (place_unknown := why_place_unknown(raw, sent)) is not None:
        return Cause("unknown", f"cause not known: {place_unknown}")
    function = next((name for name, _ in callers.most_common(1)), None)
    if function is not None and function not in CAUSES:
        return Cause("unknown", f"cause not known: the kernel copied these bytes on behalf of {function}()")
    return _likely_cause(path, is_own_path=raw.target is None)


def _sampled_cause(path: TopologySection, callers: Mapping[str, int]) -> Cause | None:
    """Return the cause that most samples show, or None.

    callers: number of samples by the kernel function that needed the copy. A packet socket is the main cause
        only if no further cause was sampled, because a further cause needs the copy even without the socket.
    """
    codes: Counter[str] = Counter()
    for function, samples in callers.items():
        codes[CAUSES.get(function, "unknown")] += samples
    samples_min = CAUSE_SHARE_MIN * codes.total()
    causes = {code: n for code, n in codes.most_common() if code != "unknown" and n >= samples_min}
    if not causes:
        return None
    main = next((code for code in causes if code != "packet_socket"), "packet_socket")
    # With few samples, the copies for the receiver may have been missed, so that only the copies for the
    # packet socket were sampled.
    if main == "packet_socket" and codes.total() < SAMPLES_MIN and _local_delivery(path) is not None:
        return None
    cause = _cause(main, path)
    if main != "packet_socket" and "packet_socket" in causes:
        return _add_packet_socket(cause, _packet_socket(path) or "a packet socket")
    second = next((code for code in causes if code != main), None)
    if second is None:
        return cause
    share = percent(causes[second] / codes.total())
    return Cause(cause.code, f"{cause.sentence}; {share} of it: {_cause(second, path).sentence}")


def _cause(code: str, path: TopologySection) -> Cause:
    """Return the cause with a code, such as `tun`. Its sentence names the device or program of the path."""
    if code in ("local_delivery", "received"):
        local = _local_delivery(path)
        return Cause(code, _unexpected_delivery(code, path)) if local is None else Cause(LOCAL, local)
    if code == "no_offload":
        return Cause(code, _lacking_offload_sentence(device_without_offload(path)))
    if code == "packet_socket":
        listener = _packet_socket(path) or "a packet socket, owner not found (`ss -0p` lists them)"
        return Cause(code, f"{listener}: each packet is copied for it; stop it and run again")
    if code == "xdp" and path.xdp == "native":
        return NATIVE_XDP
    if code == "tun":
        names = [device.name for device in path.devices if device.driver in ("tun", "tap", "macvtap")]
        devices = f" ({', '.join(names)})" if names else ""
        text = (
            f"a program or a virtual machine takes the packets from a tun or tap device{devices}, as a copy"
        )
        return Cause(code, text)
    return Cause(code, SENTENCES[code])


def _add_packet_socket(cause: Cause, listener: str) -> Cause:
    """Return a cause that also names a packet socket. Stopping that socket alone would change nothing."""
    is_final = cause.sentence.endswith("cannot show a gain")
    addition = f"with or without {listener}" if is_final else f"and {listener}, which gets a copy"
    return Cause(cause.code, f"{cause.sentence}, {addition}")


def _likely_cause(path: TopologySection, *, is_own_path: bool) -> Cause:
    """Return the likely cause, judging by the configuration of the path.

    is_own_path: True for our own traffic, where both ends and everything between them are known
    """
    device, local, listener = device_without_offload(path), _local_delivery(path), _packet_socket(path)
    if device is not None:
        return Cause("no_offload", f"likely {_lacking_offload_sentence(device)}")
    if (cipher := device_that_encrypts(path)) is not None:
        return Cause("rewritten", f"likely {ENCRYPTS.format(device=cipher.name)}")
    if local is not None:
        cause = Cause("local_delivery", local if is_own_path else f"likely {local}")
        return cause if listener is None else _add_packet_socket(cause, listener)
    if listener is not None:
        return Cause("packet_socket", f"likely {_cause('packet_socket', path).sentence}")
    return Cause("unknown", NO_CAUSE if path.devices else NO_DEVICE)


def sees_sent_packets(socket: PacketSocket, path: TopologySection) -> bool:
    """Return True if a packet socket sees the sender's packets, so that each of them is copied for it.

    A socket of a single protocol does not see outgoing packets. A socket on the receiver's host sees packets
    from the wire, unless both ends are on one host.
    """
    if socket.side == "target" and socket.device not in ("any", *(device.name for device in path.devices)):
        return False
    on_sending_host = socket.side in ("sender", "target") or path.local_delivery
    return on_sending_host and str(socket.protocol).lower() in ETH_P_ALL


def device_without_offload(path: TopologySection) -> Device | None:
    """Return the sending device for which the kernel copies referenced pages into packets, or None."""
    for device in path.devices:
        offloads = (device.features.get("scatter_gather"), device.features.get("tx_checksum"))
        if device.side in ("sender", "target") and False in offloads:
            return device
    return None


def device_that_encrypts(path: TopologySection) -> Device | None:
    """Return a device of the path that encrypts in place, or None.

    Such a device encrypts in kernel threads, so no sample of this run shows that work.
    """
    return next((device for device in path.devices if device.driver in ENCRYPTING), None)


def lacking_offload(device: Device) -> str:
    """Name the offload that a device from device_without_offload() lacks."""
    if device.features.get("scatter_gather") is False:
        return "has no scatter-gather"
    return "has no checksum offload"


def offload_change(device: Device) -> str:
    """Return how to give a device the offload that it lacks: a command, or a sentence for a tun device."""
    if device.driver == "tun":
        return "its program can change that (TUNSETOFFLOAD)"
    return f"ethtool -K {device.name} sg on tx on"


def _lacking_offload_sentence(device: Device | None) -> str:
    """Explain that packets are copied because a device lacks an offload.

    device: the device; None if not known
    """
    if device is None:
        return (
            "a device on the way has no scatter-gather or no checksum offload, so the "
            "kernel copies packets before they leave"
        )
    sentence = f"{device.name} {lacking_offload(device)}, so the kernel copies packets before they leave"
    change = offload_change(device)
    return f"{sentence}; {change}" if device.driver == "tun" else f"{sentence}; turn it on with {change}"


def _local_delivery(path: TopologySection) -> str | None:
    """Describe local delivery on a path; None if no peer is known to be on this machine."""
    if path.local_delivery:
        return f"the receiver is on the same machine ({path.kind}); this path cannot show a gain"
    local_peers = sum(bool(peer.local) for peer in path.peers)
    return f"local delivery to {local_peers} of its {len(path.peers)} peers" if local_peers else None


def _unexpected_delivery(code: str, path: TopologySection) -> str:
    """Describe packets that this machine received, on a path without a known local peer."""
    if code == "received":
        return (
            f"a device of this machine received what went out over {path.kind}: before 6.17 the kernel "
            "copies even forwarded packets on that device, since 6.17 only packets for a packet socket"
        )
    return f"local delivery: a socket of this machine received what went out over {path.kind}"


def _packet_socket(path: TopologySection) -> str | None:
    """Describe a packet socket that sees the sender's packets, with its owner; None if there is none."""
    socket = next((socket for socket in path.packet_sockets if sees_sent_packets(socket, path)), None)
    if socket is None:
        return None
    owner = "owner not visible"
    if socket.pid is not None:
        owner = f"{socket.comm or 'unknown program'}, pid {socket.pid}"
    return f"a packet socket on {socket.device or 'every device'} ({owner})"

"""Why zero-copy sends were copied after all, as far as the record of the path can tell."""

from __future__ import annotations

from typing import Any

from copyscope.record.segments import Record, topology_name

# a socket of this protocol sees every outgoing packet (net/core/dev.c, dev_queue_xmit_nit)
ETH_P_ALL = frozenset(("all", "*", "eth_p_all", "3", "0x3", "0003", "0x0003"))


def find_cause(record: Record, copied: int, silent_bytes: int) -> dict[str, str] | None:
    """The first cause that explains it: {code, sentence}; None when nothing was copied.

    A silent copy first (its completions say nothing, so nothing else explains it), then what nothing else
    could change: a device that has the send call itself copy, local delivery, and of what may go away a
    packet socket (which costs a copy even towards a real device).
    """
    if silent_bytes > 0:
        found = _silent(record)
    elif copied > 0:
        found = _no_gather(record) or _local(record) or _tap(record) or _unknown()
    else:
        return None
    code, sentence = found
    return {"code": code, "sentence": sentence}


def is_tap(socket: dict[str, Any], record: Record) -> bool:
    """Whether a packet socket costs the sender a copy.

    One of a single protocol does not see outgoing packets, and one on another host's end sees bytes from the
    wire.
    """
    if socket["side"] == "target" and socket["device"] not in ("any", *_devices(record)):
        return False
    near = socket["side"] in ("sender", "target") or record["topology"]["local_delivery"]
    return near and str(socket["protocol"]).lower() in ETH_P_ALL


def _devices(record: Record) -> list[str]:
    return [device["name"] for device in record["topology"]["devices"]]


def device_without_gather(record: Record) -> str | None:
    """The sender's device that has no scatter-gather: there MSG_ZEROCOPY copies inside the send call."""
    for device in record["topology"]["devices"]:
        if device["side"] in ("sender", "target") and device["features"].get("scatter_gather") is False:
            return str(device["name"])
    return None


def _silent(record: Record) -> tuple[str, str]:
    if record["topology"]["xdp"] != "native":
        return "silent_copy", (
            "the kernel copied packets into another form on the way, and the completion flag does not tell"
        )
    return "xdp_native", (
        "native XDP on the receiver's device: the driver copies every packet into a page of its own, and the "
        "completion flag does not tell"
    )


def _no_gather(record: Record) -> tuple[str, str] | None:
    device = device_without_gather(record)
    if device is None:
        return None
    return "no_scatter_gather", (
        f"{device} cannot gather from several pages (scatter-gather is off), so the bytes were copied at the "
        "send call; turn it on with ethtool -K"
    )


def _local(record: Record) -> tuple[str, str] | None:
    """A packet socket on such a path is named, but to stop it would change nothing."""
    listener = _listener(record)
    if record["topology"]["local_delivery"]:
        text = f"local delivery over {topology_name(record)}; this path cannot show a gain"
        return "local_delivery", text if listener is None else f"{text}, with or without {listener}"
    peers = record["topology"].get("peers", [])
    near = [peer for peer in peers if peer["local"]]
    if not near:
        return None
    text = f"local delivery to {len(near)} of its {len(peers)} peers"
    return "local_delivery", text if listener is None else f"{text}, and {listener}, which gets a copy"


def _tap(record: Record) -> tuple[str, str] | None:
    listener = _listener(record)
    if listener is None:
        return None
    return "packet_socket", f"{listener}: each packet is copied for it; stop it and run again"


def _listener(record: Record) -> str | None:
    """Who holds a packet socket on the path, and where."""
    tap = next((s for s in record["topology"]["packet_sockets"] if is_tap(s, record)), None)
    if tap is None:
        return None
    owner = "owner not visible"
    if tap["pid"] is not None:
        owner = f"{tap['comm'] or 'unknown program'}, pid {tap['pid']}"
    return f"a packet socket on {tap['device'] or 'every device'} ({owner})"


def _unknown() -> tuple[str, str]:
    return "unknown", (
        "cause not known: no XDP, packet socket, local delivery or device without scatter-gather was found "
        "on this path"
    )

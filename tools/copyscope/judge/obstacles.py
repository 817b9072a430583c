# SPDX-License-Identifier: GPL-2.0-only
"""Rules for obstacles to zero-copy and sendfile, and for reasons why sendfile is not in use. Pure."""

import errno
import re
from collections.abc import Iterator, Sequence
from functools import partial

from copyscope.base.spelling import counted, format_size
from copyscope.judge.evidence import MOSTLY, Evidence, Facts
from copyscope.judge.findings import FindingRule
from copyscope.ledger.share import percent
from copyscope.ledger.zerocopy import (
    ENCRYPTS,
    device_that_encrypts,
    device_without_offload,
    lacking_offload,
    offload_change,
    sees_sent_packets,
)

PAGE_BYTES = 4096
# Minimum size of a write in bytes for which zero-copy pays off by the kernel's documentation: "MSG_ZEROCOPY
# is generally only effective at writes over around 10 KB" (networking/msg_zerocopy.rst).
SMALL_BYTES = 10_240
# Maximum number of memory fragments in a packet: MAX_SKB_FRAGS, include/linux/skbuff.h.
PACKET_REFERENCES = 17
# Minimum number of sends in flight that a memlock limit must allow. A lower limit is an obstacle.
MEMLOCK_SENDS = 16
# First kernel version in which a veth forwards a zero-copy send without a copy. The kernel then copies the
# send only on delivery to a socket (ip_local_deliver_finish()).
VETH_FORWARDS_SINCE = (6, 17)
# Kernel function that reads a file for sendfile(2) and splice(2) if the file system cannot pass on its pages.
SPLICE_THAT_COPIES = "copy_splice_read"
OVER_A_NETWORK = "copyscope compare one_copy zero_copy --receiver-at HOST"
# Protocols with a common obstacle: (protocols, their common name, clause about zero-copy).
ProtocolGroup = tuple[tuple[str, ...], str, str]
PROTOCOLS_WITHOUT_ZEROCOPY: tuple[ProtocolGroup, ...] = (
    (("mptcp",), "MPTCP", "for which the kernel ignores MSG_ZEROCOPY and refuses SO_ZEROCOPY"),
    (("unix_stream", "unix_dgram"), "UNIX sockets", "for which the kernel refuses SO_ZEROCOPY"),
    (("sockmap",), "a sockmap", "which copies what it redirects (sk_msg) and ignores MSG_ZEROCOPY"),
)
PROTOCOLS_WITHOUT_CROSSOVER: tuple[ProtocolGroup, ...] = (
    (("udp",), "UDP", "for which copyscope measures no crossover"),
    *PROTOCOLS_WITHOUT_ZEROCOPY,
)


# Functions that check for obstacles on the network path.


def local_peers(evidence: Evidence) -> Iterator[Facts]:
    """Check if most peers are on this machine, where the kernel copies zero-copy sends."""
    peers = evidence.run.raw.topology.peers
    if evidence.zerocopy_works or not evidence.has_local_peers:
        return
    local = sum(bool(peer.local) for peer in peers)
    some_peers = f"{local} of its {len(peers)} peers"
    kind = evidence.run.raw.topology.kind
    if local == len(peers):
        yield {"peers": "peers", "its_peers": "its peers", "kind": kind}
    else:
        yield {"peers": some_peers, "its_peers": some_peers, "kind": kind}


def veth_that_copies(evidence: Evidence) -> Iterator[Facts]:
    """Check for a veth device on a kernel that copies zero-copy sends at a veth."""
    if evidence.zerocopy_works or evidence.has_local_peers:
        return
    version = re.match(r"(\d+)\.(\d+)", evidence.run.raw.machine.kernel)
    if version is None or (int(version[1]), int(version[2])) >= VETH_FORWARDS_SINCE:
        return
    yield from list(devices_of(evidence, "veth"))[:1]


def tun_devices(evidence: Evidence) -> Iterator[Facts]:
    if not evidence.zerocopy_works:
        yield from devices_of(evidence, "tun")


def devices_of(evidence: Evidence, driver: str) -> Iterator[Facts]:
    return ({"device": row.name} for row in evidence.run.raw.topology.devices if row.driver == driver)


def packet_sockets(evidence: Evidence) -> Iterator[Facts]:
    """Check for packet sockets that see the program's packets, which makes the kernel copy every packet."""
    path = evidence.run.raw.topology
    for tap in path.packet_sockets if not evidence.zerocopy_works else ():
        if sees_sent_packets(tap, path):
            owner = f"{tap.comm}[{tap.pid}]" if tap.pid is not None else "another program"
            yield {"owner": owner, "device": str(tap.device)}


def missing_offload(evidence: Evidence) -> Iterator[Facts]:
    device = device_without_offload(evidence.run.raw.topology)
    if device is not None:
        yield {"device": device.name, "lacks": lacking_offload(device), "change": offload_change(device)}


def encrypting_device(evidence: Evidence) -> Iterator[Facts]:
    device = device_that_encrypts(evidence.run.raw.topology)
    if device is not None:
        yield {"device": device.name}


def attached_xdp(evidence: Evidence) -> Iterator[Facts]:
    if evidence.run.raw.topology.xdp:
        yield {"mode": evidence.run.raw.topology.xdp}


# Functions that check for obstacles in the program.


def small_calls(evidence: Evidence) -> Iterator[Facts]:
    if evidence.size_bytes < SMALL_BYTES:
        yield {"size": format_size(2 * evidence.size_bytes)}


def reused_buffers(evidence: Evidence) -> Iterator[Facts]:
    """Check if most bytes are sent from a buffer at the same address as the previous buffer.

    Each kind of call is weighted by its bytes, because headers are many but too small to matter.
    """
    part = sum(share * shape.repeated / shape.messages for share, _, shape in evidence.shapes_by_bytes)
    if part > MOSTLY:
        yield {"part": percent(part)}


def small_buffers(evidence: Evidence) -> Iterator[Facts]:
    """Check if most bytes are sent in messages of several buffers that are smaller than a page."""
    shares: list[tuple[float, float, float]] = []
    for share, message_bytes, shape in evidence.shapes_by_bytes:
        buffers = shape.buffers / shape.messages
        buffer_bytes = message_bytes / max(1.0, buffers)
        if buffers >= 2 and buffer_bytes < PAGE_BYTES:
            shares.append((share, buffers, buffer_bytes))
    if sum(share for share, _, _ in shares) > MOSTLY:
        _, buffers, buffer_bytes = max(shares)
        yield {"buffers": f"{buffers:.0f}", "size": format_size(buffer_bytes)}


def low_memlock_limit(evidence: Evidence) -> Iterator[Facts]:
    """Check if the memlock limit allows fewer than MEMLOCK_SENDS sends in flight."""
    limit_bytes = evidence.run.raw.machine.limits["memlock_bytes"]
    # A send that begins in the middle of a page occupies an additional page.
    pages = evidence.size_bytes // PAGE_BYTES + 2
    send_bytes = pages * PAGE_BYTES
    if limit_bytes is not None and limit_bytes < MEMLOCK_SENDS * send_bytes:
        yield {"kib": f"{limit_bytes >> 10}", "sends": f"{limit_bytes // send_bytes}", "pages": f"{pages}"}


def main_protocol(evidence: Evidence, groups: Sequence[ProtocolGroup]) -> Iterator[Facts]:
    """Check if most of the sent bytes went through a single group of protocols."""
    for protocols, name, why in groups:
        if evidence.share_by_protocol(protocols) > MOSTLY:
            yield {"protocol": name, "why": why}


# Functions that check why a program that reads files sends them by calls that copy, and not by sendfile.


def ciphers_in_program(evidence: Evidence) -> Iterator[Facts]:
    """Check if the program encrypts the files that it sends."""
    if evidence.copies_files and evidence.tls is not None:
        over_tls = evidence.server.over_tls
        yield {
            "share": evidence.tls.shown(),
            "spoken": evidence.tls.spoken(),
            "over_tls": f": {over_tls}" if over_tls else "",
        }


def calls_that_moved_nothing(evidence: Evidence) -> Iterator[Facts]:
    """Check if sendfile(2) and splice(2) failed to move any byte to a socket while calls were timed."""
    rows = [
        row
        for row in evidence.run.raw.calls
        if row.side == "target" and row.syscall in ("sendfile", "splice") and row.calls
    ]
    if not evidence.copies_files or not rows or any(row.bytes for row in rows):
        return
    errors = [errno.errorcode.get(row.last_errno, str(row.last_errno)) for row in rows if row.last_errno]
    yield {
        "calls": " and ".join(f"{counted(row.calls, 'call')} of {row.syscall}" for row in rows),
        "errors": " and ".join(dict.fromkeys(errors)) or "refused",
    }


def file_system_without_pages(evidence: Evidence) -> Iterator[Facts]:
    """Check if the file system cannot pass on its pages, which makes sendfile and splice copy."""
    samples = evidence.run.raw.samples
    if evidence.copies_files and any(
        row.symbol == SPLICE_THAT_COPIES and row.side == "target" for row in samples
    ):
        yield {}


def hidden_files(evidence: Evidence) -> Iterator[Facts]:
    if evidence.copies_files and evidence.server.hidden is not None:
        yield {"hidden": evidence.server.hidden}


on_path, to_pages, in_program, fallback, guess = (
    partial(FindingRule, kind) for kind in ("path", "pages", "program", "fallback", "guess")
)
ON_PATH = (
    on_path(
        "local peers",
        local_peers,
        "{peers} are on this machine: the kernel copies anyway",
        "{its_peers} are on this machine ({kind}): on delivery the kernel copies zero-copy sends, but not "
        f"pages of sendfile; to test zero-copy over a network, run {OVER_A_NETWORK}",
    ),
    on_path(
        "veth",
        veth_that_copies,
        "{device} is a veth: Linux before 6.17 copies there",
        "its packets pass {device}, a veth: before Linux 6.17 the kernel copies a zero-copy send that a veth "
        "receives, even if it only forwards the packet",
    ),
    on_path(
        "tun",
        tun_devices,
        "{device}: a program reads the packets, as copies",
        "a program or a virtual machine reads the packets of {device}, as copies",
    ),
    on_path(
        "packet socket",
        packet_sockets,
        "{owner} listens on {device}: a copy for it",
        "{owner} has an ETH_P_ALL socket on {device}, so the kernel copies every packet for it",
    ),
)
TO_PAGES = (
    to_pages(
        "no offload",
        missing_offload,
        "{device} {lacks}: the kernel copies",
        "{device} {lacks}, so the kernel copies packets before they leave: {change}",
    ),
    to_pages(
        "encrypting device",
        encrypting_device,
        "{device} encrypts: the cipher is a copy",
        ENCRYPTS,
    ),
    to_pages(
        "xdp",
        attached_xdp,
        "XDP ({mode}) on its device: the kernel copies",
        "an XDP program ({mode}) is attached to its device, so the kernel copies packets for it",
    ),
)
SMALL_CALLS = in_program(
    "small calls",
    small_calls,
    "half of its bytes are sent in calls of {size} or less",
    "its writes are small: half of its bytes are sent in calls of {size} or less, and by the kernel's "
    "documentation zero-copy pays off above 10 KB",
)
OTHER_PROTOCOL = in_program(
    "other protocol",
    partial(main_protocol, groups=PROTOCOLS_WITHOUT_CROSSOVER),
    "most of its traffic is {protocol}",
    "most of its traffic is {protocol}, {why}",
)
IN_PROGRAM = (
    SMALL_CALLS,
    in_program(
        "reused buffers",
        reused_buffers,
        evidence="{part} of its bytes are in messages that begin at the same address as the message before: "
        "with zero-copy it must wait for each notification before it fills the buffer again, or use several "
        "buffers in turn",
    ),
    in_program(
        "small buffers",
        small_buffers,
        evidence="its messages consist of {buffers} buffers of {size}: zero-copy needs a page reference for "
        f"each buffer, and a packet has room for {PACKET_REFERENCES}, so packets would be small",
    ),
    in_program(
        "memlock",
        low_memlock_limit,
        evidence="its memlock limit of {kib} KiB allows only {sends} sends of {pages} pages in flight: raise "
        "RLIMIT_MEMLOCK",
    ),
    OTHER_PROTOCOL,
)
# The first rule that applies gives the reason why sendfile is not in use.
FALLBACKS = (
    fallback(
        "ciphers",
        ciphers_in_program,
        "TLS in the program: its cipher takes {share}",
        "TLS in the program prevents sendfile, because its cipher must read every byte of a file; this takes "
        "{spoken} of its CPU time{over_tls}",
    ),
    fallback(
        "moved nothing",
        calls_that_moved_nothing,
        "{calls} moved nothing: {errors}",
        "{calls} moved nothing ({errors}), so the program sent by calls that copy instead",
    ),
    fallback(
        "no pages",
        file_system_without_pages,
        "its file system cannot pass on pages: sendfile copies",
        "sendfile and splice copy from this file system, which cannot pass on its pages "
        f"({SPLICE_THAT_COPIES})",
    ),
)
# A guess is only a likely reason, so it does not rule out sendfile.
GUESSES = (
    guess(
        "hidden",
        hidden_files,
        evidence="sendfile is not in use: {hidden}",
    ),
)
OBSTACLES = (*ON_PATH, *TO_PAGES, *IN_PROGRAM, *FALLBACKS, *GUESSES)

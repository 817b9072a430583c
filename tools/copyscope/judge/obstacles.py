"""What stands in the way of zero-copy and sendfile: on the path, and in the program. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from copyscope.ledger.zerocopy import (
    ENCRYPTS,
    device_that_encrypts,
    device_without_offload,
    is_tap,
    what_it_lacks,
)
from copyscope.record.check import Whole
from copyscope.units import format_size

# The part of the bytes from which on something is said of the program.
MOSTLY = 0.5
PAGE_SHIFT = 12
# "MSG_ZEROCOPY is generally only effective at writes over around 10 KB" (networking/msg_zerocopy.rst)
SMALL_BYTES = 10_240
# References to memory that one packet holds: MAX_SKB_FRAGS, include/linux/skbuff.h
PACKET_REFERENCES = 17
# Which of them, what they are called, what is the matter with them.
Protocols = tuple[tuple[str, ...], str, str]
WITHOUT_ZEROCOPY: tuple[Protocols, ...] = (
    (("mptcp",), "MPTCP", "where the kernel ignores MSG_ZEROCOPY (it refuses SO_ZEROCOPY)"),
    (("unix_stream", "unix_dgram"), "UNIX sockets", "where the kernel refuses SO_ZEROCOPY"),
    (("sockmap",), "a sockmap", "whose sockets copy what they redirect (sk_msg) and ignore MSG_ZEROCOPY"),
)
OTHER_PROTOCOLS = ((("udp",), "UDP", "of which copyscope has no crossover"), *WITHOUT_ZEROCOPY)
OVER_A_NETWORK = "copyscope compare one_copy zero_copy --receiver-at HOST"


@dataclass(frozen=True)
class Obstacle:
    """`short` fits a line beside the name of what it stops."""

    short: str
    text: str


def of_zerocopy(run: Whole) -> list[Obstacle]:
    """What on the path makes a zero-copy send a copy."""
    found = []
    path, local = run.raw.topology, run.portrait.local_share
    veths = [device.name for device in path.devices if device.driver == "veth"]
    if _goes_by_reference(run):
        return of_pages(run)
    if local is not None and local > MOSTLY:
        # All of them, as far as they are known to be.
        here = sum(bool(peer.local) for peer in path.peers)
        every = here == len(path.peers)
        who = "peers" if every else f"{here} of its {len(path.peers)} peers"
        whose = "its peers" if every else who
        text = (
            f"{whose} are on this machine ({path.kind}): a zero-copy send is copied there after all "
            f"(sendfile is not); whether it pays over a network: {OVER_A_NETWORK}"
        )
        found.append(Obstacle(f"{who} are on this machine, the kernel copies anyway", text))
    elif veths and _copies_what_it_forwards(run.raw.machine.kernel):
        veth = veths[0]
        text = (
            f"its packets pass {veth}, a veth: before 6.17 the kernel copies a zero-copy send where a device "
            "of its own receives it, also to forward it"
        )
        found.append(Obstacle(f"{veth} is a veth: before 6.17 a copy", text))
    for device in (device for device in path.devices if device.driver == "tun"):
        text = f"a program or a virtual machine takes the packets from {device.name}, as a copy"
        found.append(Obstacle(f"{device.name}: a program takes the packets, a copy", text))
    for tap in (socket for socket in path.packet_sockets if is_tap(socket, path)):
        owner = f"{tap.comm}[{tap.pid}]" if tap.pid is not None else "another program"
        text = f"{owner} has an ETH_P_ALL socket on {tap.device}: every packet is copied for it"
        found.append(Obstacle(f"{owner} listens on {tap.device}: a copy for it", text))
    return found + of_pages(run)


def _goes_by_reference(run: Whole) -> bool:
    """Whether it uses zero-copy here, and most of that was not copied after all."""
    seen = run.derived.zerocopy
    return seen is not None and (seen.copied or 0) < (1 - MOSTLY) * (seen.completions or 0)


def _copies_what_it_forwards(kernel: str) -> bool:
    """Since 6.17 it is the delivery to a socket that copies (ip_local_deliver_finish())."""
    numbers = re.match(r"(\d+)\.(\d+)", kernel)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < (6, 17)


def of_pages(run: Whole) -> list[Obstacle]:
    """What makes pages that go by reference a copy, those of files as well."""
    found = []
    device = device_without_offload(run.raw.topology)
    if device is not None:
        text = f"{device.name} {what_it_lacks(device)}: the kernel copies packets before they leave"
        found.append(Obstacle(f"{device.name} {what_it_lacks(device)}: a copy", text))
    if (cipher := device_that_encrypts(run.raw.topology)) is not None:
        found.append(Obstacle(f"{cipher.name} encrypts: a copy", f"{cipher.name} {ENCRYPTS}"))
    xdp = run.raw.topology.xdp
    where = f"XDP ({xdp}) on its device"
    return found + ([Obstacle(f"{where}: a copy", where)] if xdp else [])


def in_the_program(run: Whole, typical_bytes: int) -> list[str]:
    """What in the way it sends now would have to change for zero-copy."""
    found = [one.text for one in in_small_calls(typical_bytes)] + _in_its_buffers(run)
    memlock_bytes = run.raw.machine.limits["memlock_bytes"]
    pages = (typical_bytes >> PAGE_SHIFT) + 2
    if memlock_bytes is not None and memlock_bytes < 16 * (pages << PAGE_SHIFT):
        found.append(
            f"its memlock limit of {memlock_bytes >> 10} KiB holds "
            f"{memlock_bytes // (pages << PAGE_SHIFT)} sends of {pages} pages in flight"
        )
    return found + [one.text for one in in_its_protocol(run)]


def in_small_calls(typical_bytes: int) -> list[Obstacle]:
    if typical_bytes >= SMALL_BYTES:
        return []
    size = format_size(2 * typical_bytes)
    text = (
        f"its writes are small: half of its bytes go out in calls of {size} or less, and the kernel's "
        "documentation has zero-copy pay above 10 KB"
    )
    return [Obstacle(f"half of its bytes go in calls of {size} or less", text)]


def in_its_protocol(run: Whole, among: Sequence[Protocols] = OTHER_PROTOCOLS) -> list[Obstacle]:
    found = []
    for protocols, name, why in among:
        rows = [row for row in run.raw.volume if row.direction == "send" and row.protocol in protocols]
        if sum(row.bytes for row in rows) > MOSTLY * run.derived.tx_bytes:
            found.append(Obstacle(f"most of it is {name}", f"most of it is {name}, {why}"))
    return found


def _in_its_buffers(run: Whole) -> list[str]:
    """Each kind of call counts by the bytes that it sends: headers are many, and too small to be pinned."""
    shapes = {(row.protocol, row.syscall): row for row in run.raw.shapes or [] if row.messages > 0}
    sent = run.portrait.send
    if sent is None:
        return []
    repeated = small = 0.0
    like = (0.0, 0.0, 0.0)
    for call in sent.by_call:
        shape = shapes.get((call.protocol, call.syscall))
        if shape is None:
            continue
        share = call.bytes / sent.bytes
        repeated += share * shape.repeated / shape.messages
        buffers = shape.buffers / shape.messages
        one_bytes = call.bytes / call.calls / max(1.0, buffers)
        if buffers >= 2 and one_bytes < 1 << PAGE_SHIFT:
            small += share
            like = max(like, (share, buffers, one_bytes))
    found = []
    if repeated > MOSTLY:
        found.append(
            f"{repeated * 100:.0f} % of its bytes are in messages that begin at the address of the message "
            "before: it would have to wait for each completion before it fills that buffer again, or take "
            "turns with several"
        )
    if small > MOSTLY:
        found.append(
            f"its messages are {like[1]:.0f} buffers of {format_size(like[2])}: zero-copy takes a page "
            f"reference for each, and a packet has {PACKET_REFERENCES}, so packets would be small"
        )
    return found

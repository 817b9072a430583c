"""What the lines mean that only the report of a watched program has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from copyscope.render.explain import entry

Record = Mapping[str, Any]

TARGET_MEANING = (
    "The program that was watched, with its threads and children; `other` is softirq work on packets of its "
    "connections, on the time of others. Its traffic is never paused; bytes are those of its socket calls."
)
SEND_MEANING = (
    "One call is one pass through the socket layer: a message of sendmmsg, a piece of sendfile. A "
    "histogram line holds the sizes from its number up to twice that. By reference means without a copy"
    " into the kernel."
)
RECEIVE_MEANING = (
    "The same for receive calls. What splice takes out of a socket is counted in ledger segments."
)
BUFFER_MEANING = (
    "A message may consist of several buffers (iovecs). Copies are fastest from whole cache lines; "
    "zero-copy holds whole pages, and a buffer across two pages costs both. Messages that begin where "
    "the one before did show a program that fills one buffer again and again: with zero-copy it must "
    "wait for the completion first."
)
ROUND_MEANING = (
    "tcp_sendmsg_locked() goes round once for each packet or page fragment that it fills, and once more"
    " when it has to wait for room. One round is the least; large sends need about one for each 32 KiB."
)
PACKET_MEANING = (
    "What left in the program's own time, before the device cuts it: the larger, the cheaper per byte. "
    "What the kernel sends later, when acknowledgements arrive, is not in it."
)
PEER_MEANING = (
    "To whom it sent. On this machine (lo, veth) zero-copy sends are copied after all; pages of files "
    "are not."
)
ZEROCOPY_MEANING = (
    "What became of its zero-copy sends, read from the error queues of its sockets, and from the "
    "notifications of its io_uring, without taking anything off. Copied after all means that the cost "
    "of both was paid."
)
LIMIT_MEANING = (
    "What kept it from being faster, by its CPU time and by TCP's own account of what its connections "
    "waited for."
)


def explain_watch_lines(record: Record, width: int) -> list[Text]:
    """The portrait's lines that this run shows, and the two around them."""
    portrait = record["portrait"]
    found = {
        "target": TARGET_MEANING,
        "send": portrait["send"] and SEND_MEANING,
        "receive": portrait["receive"] and RECEIVE_MEANING,
        "buffers": portrait["buffers"] and BUFFER_MEANING,
        "rounds": portrait["rounds"] and ROUND_MEANING,
        "packets": portrait["packets"] and PACKET_MEANING,
        "peers": record["topology"]["peers"] and PEER_MEANING,
        "zero-copy": record["zerocopy"] and ZEROCOPY_MEANING,
        "bottleneck": LIMIT_MEANING,
    }
    return [line for name, meaning in found.items() if meaning for line in entry(name, meaning, width)]

"""Identities of the exact tier of a watched program: function hooks against what its socket calls said. Pure.

Nothing is paused, so what was under way when the hooks began or ceased to count is the tolerance: what moved
between the readings on both sides of that moment, one call of each thread, and zero-copy sends that were not
completed yet.
"""

from __future__ import annotations

from typing import Any

from copyscope.ledger.functions import ARM, bytes_identity, self_identities
from copyscope.ledger.identities.bytes import Identity, compare, unchecked
from copyscope.ledger.identities.program import largest, under_way
from copyscope.ledger.program.flows import zerocopy_totals
from copyscope.ledger.zerocopy_life import HOOK
from copyscope.record.program.volume import BY_REFERENCE, TAKEN, added, volume
from copyscope.record.segments import Record, cut_short, select, total


def function_identities(record: Record) -> list[Identity]:
    """All of them; none where no function was hooked."""
    if record["functions"] is None or cut_short(record):
        return []
    segments = select(record, ARM)
    sent = _over_tcp(record, "send")
    referenced = [row for row in sent if row["syscall"] in BY_REFERENCE]
    zerocopy_bytes = added(sent, "zerocopy_bytes")
    pinned = added(referenced, "bytes") + zerocopy_bytes
    sending = _tolerance(segments, "sent", largest(sent))
    received = [row for row in _over_tcp(record, "receive") if row["syscall"] not in TAKEN]
    received += _over_tcp(record, "peek")
    receiving = _tolerance(segments, "received", largest(received))
    copied = added(sent, "bytes") - pinned
    return [
        bytes_identity(
            *(record, "functions_copy_in", "copy_in", copied, "bytes sent without reference"),
            tolerance=sending,
        ),
        bytes_identity(
            *(record, "functions_pin", "pin", pinned, "bytes sent by reference"),
            tolerance=sending,
        ),
        bytes_identity(
            *(
                record,
                "functions_copy_out",
                "copy_out",
                added(received, "bytes"),
                "bytes received or looked at",
            ),
            tolerance=receiving,
        ),
        *_of_zerocopy(record, segments, zerocopy_bytes, sending),
        *self_identities(record),
    ]


def _over_tcp(record: Record, direction: str) -> list[dict[str, Any]]:
    """The hooked functions are TCP's."""
    return [row for row in volume(record, direction, ARM) if row["protocol"] == "tcp"]


def _tolerance(segments: list[dict[str, Any]], done: str, largest_bytes: int) -> int:
    return total(segments, "target", f"edge_{done}_bytes") + under_way(segments, largest_bytes)


def _of_zerocopy(
    record: Record, segments: list[dict[str, Any]], zerocopy_bytes: int, sending: int
) -> list[Identity]:
    """Whose memory was copied later, and which sends the kernel gave back, against the error queues."""
    if not zerocopy_bytes:
        return []
    totals = zerocopy_totals(record, ARM)
    owned_what = "deferred copies of the target's memory = bytes of sends reported copied"
    ended_what = "sends in the kernel's notifications = completions in the error queues"
    functions = record["functions"]
    reason = None
    if functions["owners"] is None:
        row = next((row for row in record["hooks"] if row["id"] == HOOK), None)
        reason = f"its hooks: {row['reason'] if row else 'none'}"
    elif not totals["completions"]:
        reason = "no completion of a zero-copy send was seen"
    if reason is not None:
        return [
            unchecked("functions_owner", owned_what, "bytes", reason),
            unchecked("functions_completions", ended_what, "sends", reason),
        ]
    open_sends = total(segments, "target", "open_zerocopy_sends")
    ended = [row for row in functions["completions"] if row["side"] == "target"]
    notified = sum(row["copied"] + row["zerocopied"] for row in ended)
    seen = totals["completions"] + totals["unseen"]
    # Every thread may be inside one send, which the hooks count and the sockets do not yet, or the reverse.
    edge_sends = total(segments, "target", "edge_send_calls") + under_way(segments, 1)
    found = [
        compare(
            "functions_completions", ended_what, notified, seen, "sends", tolerance=open_sends + edge_sends
        )
    ]
    if totals["copied"] not in (0, totals["completions"]):
        mixed = "some sends were copied and some not: the flag says of which, not of how many bytes"
        return [unchecked("functions_owner", owned_what, "bytes", mixed), *found]
    owned = sum(row["bytes"] for row in functions["owners"] if row["owner_side"] == "target")
    expected = zerocopy_bytes if totals["copied"] else 0
    # What is sent a second time is copied a second time.
    again = added(record["connections"], "retransmitted_bytes")
    tolerance = sending + again + open_sends * largest(volume(record, "send", ARM))
    return [compare("functions_owner", owned_what, owned, expected, "bytes", tolerance=tolerance), *found]

"""A record with stacks, as a run with --stacks keeps it, and known sums."""

from __future__ import annotations

from typing import Any

from builders import raw_record
from copyscope.ledger.derive import derive
from copyscope.taxonomy.samples import to_record, to_stacks
from copyscope.taxonomy.taxonomy import Taxonomy

# leaf first, as the collector says it
STACKS = [
    ("sender", ["_copy_from_iter", "tcp_sendmsg_locked", "tcp_sendmsg", "do_syscall_64"], 40),
    ("sender", ["tcp_write_xmit", "tcp_sendmsg_locked", "tcp_sendmsg", "do_syscall_64"], 20),
    ("receiver", ["_copy_to_iter", "skb_copy_datagram_iter", "tcp_recvmsg", "do_syscall_64"], 25),
]


def record() -> dict[str, Any]:
    samples = [
        {"side": side, "event": "cpu-clock", "frames": frames}
        | {"samples": count, "weight": count * 250_000, "weight_squared": count * 250_000.0**2}
        for side, frames, count in STACKS
    ]
    raw = raw_record("one_copy")
    taxonomy = Taxonomy.load()
    return derive(raw | {"samples": to_record(samples, taxonomy), "stacks": to_stacks(samples, taxonomy)})


def row(made: dict[str, Any], account: str) -> dict[str, Any]:
    """The only row of an account."""
    (found,) = (one for one in made["ledger"] if one["account"] == account)
    return dict(found)

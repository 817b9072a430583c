# SPDX-License-Identifier: GPL-2.0-only
"""A record with stacks and known sums, as a run with --stacks makes it."""

from __future__ import annotations

from typing import Any

from builders.stacks import record_with_stacks

# (process, frames with the leaf first as in the collector's report, samples)
STACKS = [
    ("sender", ["_copy_from_iter", "tcp_sendmsg_locked", "tcp_sendmsg", "do_syscall_64"], 40),
    ("sender", ["tcp_write_xmit", "tcp_sendmsg_locked", "tcp_sendmsg", "do_syscall_64"], 20),
    ("receiver", ["_copy_to_iter", "skb_copy_datagram_iter", "tcp_recvmsg", "do_syscall_64"], 25),
]


def record() -> dict[str, Any]:
    return record_with_stacks(STACKS)


def row(record: dict[str, Any], account: str) -> dict[str, Any]:
    """Return the only row of an account in the ledger."""
    (row_found,) = (ledger_row for ledger_row in record["ledger"] if ledger_row["account"] == account)
    return dict(row_found)

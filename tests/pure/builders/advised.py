# SPDX-License-Identifier: GPL-2.0-only
"""Raw records of invented programs that need advice, and the advice for them."""

from typing import Any

from .documents import advise, derive

Record = dict[str, Any]


def without_capture(raw: Record) -> Record:
    """Remove the program that captures packets, so that this obstacle does not decide."""
    raw["topology"]["packet_sockets"] = []
    return raw


def named(raw: Record, comm: str) -> Record:
    """Set the name of the only process."""
    raw["target"] |= {"pids": [{"pid": 4711, "comm": comm}], "comm": comm}
    return raw


def with_advice(raw: Record) -> Record:
    """Return a complete record whose advice no capturing program decides."""
    full = derive(without_capture(raw))
    return full | {"advice": advise(full, None)}

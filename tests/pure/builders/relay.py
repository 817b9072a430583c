# SPDX-License-Identifier: GPL-2.0-only
"""An invented run whose sender is a relay."""

import copy
from typing import Any

Record = dict[str, Any]


def as_relay(raw: Record) -> Record:
    """Return a raw record in which the sender first received all bytes that it sent, 16 KiB at a time."""
    record = copy.deepcopy(raw)
    counted = 0
    for segment in record["run"]["segments"]:
        sender = segment["sides"]["sender"]
        sender["taken"] = _taken(sender["bytes"])
        counted += sender["bytes"] * (segment["phase"] == record["run"]["bytes_phase"])
    record["traffic"]["sender"]["taken"] = _taken(record["traffic"]["sender"]["bytes"])
    nothing = {"zerocopy_calls": 0, "zerocopy_bytes": 0}
    record["bytes"] += [
        {"side": "sender", "hook": hook, "calls": counted // 16_384, "bytes": counted, **nothing}
        for hook in ("receive_bytes", "copy_out_bytes")
    ]
    return record


def _taken(bytes_: int) -> Record:
    return {"calls": bytes_ // 16_384, "bytes": bytes_, "spliced_bytes": 0}

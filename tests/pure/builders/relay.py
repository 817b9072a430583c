"""An invented run whose sender is a relay."""

import copy
from typing import Any

Record = dict[str, Any]


def as_relay(raw: Record) -> Record:
    """What a raw record of plain sends becomes when what is sent was received first, 16 KiB at a time."""
    made = copy.deepcopy(raw)
    counted = 0
    for segment in made["run"]["segments"]:
        sender = segment["sides"]["sender"]
        sender["taken"] = _taken(sender["bytes"])
        counted += sender["bytes"] * (segment["phase"] == made["run"]["bytes_phase"])
    made["traffic"]["sender"]["taken"] = _taken(made["traffic"]["sender"]["bytes"])
    nothing = {"zerocopy_calls": 0, "zerocopy_bytes": 0}
    made["bytes"] += [
        {"side": "sender", "hook": hook, "calls": counted // 16_384, "bytes": counted, **nothing}
        for hook in ("receive_bytes", "copy_out_bytes")
    ]
    return made


def _taken(bytes_: int) -> Record:
    return {"calls": bytes_ // 16_384, "bytes": bytes_, "spliced_bytes": 0}

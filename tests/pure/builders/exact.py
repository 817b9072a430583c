# SPDX-License-Identifier: GPL-2.0-only
"""A record with function hooks: its section `functions` balances with the segments of its phase."""

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .kernel import hook_row

Record = dict[str, Any]

# Hook -> category of its calls; None: no category.
HOOKED = {
    **{name: name for name in ("copy_in", "pin", "deferred", "copy_out")},
    "splice": "pin",
    **dict.fromkeys(("send", "receive", "push", "zerocopy_use")),
}
SEND_NS = 1_000_000
# Totals of bytes that a receiver takes without a copy.
WAYS_OUT = ("mapped", "spliced")
USUAL = ("LLC-load-misses",)
READ_COST = {"reads": 496, "events": 1, "look_ns": 170.0, "low_ns": 169.0, "high_ns": 171.25}


def _event(name: str, counted: Mapping[str, int], running: Mapping[str, float]) -> Record:
    share = running.get(name, 1.0)
    if name not in counted:
        reason, status, share_or_none = "this PMU has no such event", "unsupported", None
    elif share < 1:
        reason, status, share_or_none = "more events than the PMU has counters", "scaled", share
    else:
        reason, status, share_or_none = None, "counted", 1.0
    return {"name": name, "unit": name, "status": status, "reason": reason, "running": share_or_none}


def with_functions(
    raw: Record,
    *,
    gate: int = 1,
    spread: float = 0.0,
    counted: Mapping[str, int] = MappingProxyType({}),
    running: Mapping[str, float] = MappingProxyType({}),
) -> Record:
    """Return a raw record with function hooks; its phases must include `functions`.

    gate: one copy in `gate` is timed
    spread: relative standard deviation of the times of copies
    counted: event -> events per ns
    running: event -> share of the time in which the PMU counted it
    """
    record = copy.deepcopy(raw)
    segments = [s for s in record["run"]["segments"] if "functions" in s["phase"]]
    sent = sum(s["sides"]["sender"]["bytes"] for s in segments)
    calls = sum(s["sides"]["sender"]["calls"] for s in segments)
    timed = calls // gate
    zerocopy = [s["sides"]["sender"]["zerocopy"] or {"bytes_sent": 0, "bytes_copied": 0} for s in segments]
    referenced = sum(z["bytes_sent"] for z in zerocopy)
    referenced += sum((s["sides"]["sender"].get("spliced") or {"bytes": 0})["bytes"] for s in segments)
    copied = sum(z["bytes_copied"] for z in zerocopy)
    receivers = [s["sides"]["receiver"] for s in segments]
    uncopied = sum((r.get(way) or {"bytes": 0})["bytes"] for r in receivers for way in WAYS_OUT)
    received = sum(r["bytes"] - r["truncated_bytes"] for r in receivers) - uncopied

    def cell(side: str, context: str, category: str, bytes_: int, self_ns: int) -> Record:
        row = {"side": side, "context": context, "category": category, "calls": calls, "bytes": bytes_}
        part = self_ns // gate
        counters = {name: rate * part for name, rate in counted.items()}
        # Without `spread`, all timed calls take the same time.
        squared = (1 + spread**2) * part**2 / timed
        return {
            **row,
            "timed_calls": timed,
            "self_ns": part,
            "self_ns_squared": squared,
            "counters": counters,
        }

    record["functions"] = {
        "cells": [
            cell("sender", "process", "copy_in", sent - referenced, 2 * SEND_NS),
            cell("sender", "process", "pin", referenced, SEND_NS),
            cell("sender", "softirq", "deferred", copied, 3 * SEND_NS),
            cell("receiver", "process", "copy_out", received, 4 * SEND_NS),
        ],
        **_life(segments),
        "gate": gate,
        "events": [_event(name, counted, running) for name in dict.fromkeys((*USUAL, *counted))],
        "read_cost": dict(READ_COST) if counted else None,
    }
    record["run"] |= {"tier": "exact", "tier_reason": f"function hooks: {len(HOOKED)} by fentry"}
    record["hooks"] += [
        hook_row(name, category=category, required=name in ("send", "receive"))
        for name, category in HOOKED.items()
    ]
    record["loss"] |= {
        "functions_look_stopped": 0,
        "recursion_splice": {"count": None, "reason": "this kernel does not count it"},
    }
    return record


def _life(segments: list[Record]) -> Record:
    """Return owners of late copies, and notifications.

    A third of the copies ran in the receiver's time. Half of the notifications came before the send returned.
    """
    zerocopy = [s["sides"]["sender"]["zerocopy"] for s in segments if s["sides"]["sender"]["zerocopy"]]
    copied = sum(z["copied"] for z in zerocopy)
    copied_bytes = sum(z["bytes_copied"] for z in zerocopy)
    completions = sum(z["completions"] for z in zerocopy)
    third = copied // 3, copied_bytes // 3

    def owner(current: str, calls: int, bytes_: int) -> Record:
        row = {"owner_side": "sender", "current_side": current, "context": "softirq"}
        return {**row, "calls": calls, "bytes": bytes_}

    sides = [("sender", copied - third[0], copied_bytes - third[1]), ("receiver", *third)]
    half = completions // 2
    histogram = {"unit": "ns", "buckets": [[0, 1, half], [1024, 1280, completions - half]]}
    ended = {"side": "sender", "copied": copied, "zerocopied": completions - copied}
    latency = {"side": "sender", "count": completions, "before_return": half, "histogram": histogram}
    return {
        "owners": [owner(*side) for side in sides if copied],
        "completions": [ended] * bool(completions),
        "completion_latency": [latency] * bool(completions),
    }

"""A record with function hooks: a functions section that balances with the segments of its arm."""

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .kernel import hook_row

Record = dict[str, Any]

# Hook -> the category that its calls are counted in.
HOOKED = {
    **{name: name for name in ("send", "receive", "copy_in", "pin", "deferred", "copy_out")},
    "splice": "pin",
    "zerocopy_use": None,
}
SEND_NS = 1_000_000
# What a receiver takes otherwise than by a copy.
WAYS_OUT = ("mapped", "spliced")
USUAL = ("cycles", "instructions", "LLC-load-misses", "L1-dcache-load-misses")
READ_COST = {
    "reads": 992,
    "events": 2,
    "median_ns": 130.5,
    "low_ns": 130.0,
    "high_ns": 131.25,
    "clock_ns": 31.0,
    "look_ns": 170.0,
    "added": [
        {"name": "cycles", "count": 310.0, "low": 309.0, "high": 312.0},
        {"name": "instructions", "count": 420.0, "low": 420.0, "high": 420.0},
    ],
}


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
    """The raw record (arms must include `functions`) as a collector with function hooks would report it.

    One root in `gate` is timed, with this relative standard deviation between them. `counted` are events and
    how many of them happen per ns; those in `running` shared the PMU.
    """
    record = copy.deepcopy(raw)
    segments = [s for s in record["run"]["segments"] if "functions" in s["arm"]]
    sent = sum(s["sender"]["bytes"] for s in segments)
    calls = sum(s["sender"]["calls"] for s in segments)
    timed = calls // gate
    zerocopy = [s["sender"]["zerocopy"] or {"bytes_sent": 0, "bytes_copied": 0} for s in segments]
    referenced = sum(z["bytes_sent"] for z in zerocopy)
    referenced += sum((s["sender"].get("spliced") or {"bytes": 0})["bytes"] for s in segments)
    copied = sum(z["bytes_copied"] for z in zerocopy)
    uncopied = sum((s["receiver"].get(way) or {"bytes": 0})["bytes"] for s in segments for way in WAYS_OUT)
    received = sum(s["receiver"]["bytes"] - s["receiver"]["truncated_bytes"] for s in segments) - uncopied

    def cell(side: str, context: str, category: str, bytes_: int, self_ns: int) -> Record:
        row = {"side": side, "context": context, "category": category, "calls": calls, "bytes": bytes_}
        part = self_ns // gate
        counters = {name: rate * part for name, rate in counted.items()}
        # Every timed call the same, but for what rounding leaves.
        squared = (1 + spread**2) * part**2 / timed
        return {
            **row,
            "timed_calls": timed,
            "self_ns": part,
            "self_ns_squared": squared,
            "counters": counters,
        }

    def root(side: str, inclusive_ns: int) -> Record:
        part = inclusive_ns // gate
        return {
            "side": side,
            "calls": calls if part else 0,
            "timed_calls": timed if part else 0,
            "inclusive_ns": part,
            "counters": {name: rate * part for name, rate in counted.items()},
        }

    record["functions"] = {
        "cells": [
            cell("sender", "process", "send", sent, SEND_NS),
            cell("sender", "process", "copy_in", sent - referenced, 2 * SEND_NS),
            cell("sender", "process", "pin", referenced, SEND_NS),
            cell("sender", "process", "pin_pages", 4096 * calls if referenced else 0, 0),
            cell("sender", "softirq", "deferred", copied, 3 * SEND_NS),
            cell("receiver", "process", "copy_out", received, 4 * SEND_NS),
        ],
        "roots": [root("sender", 7 * SEND_NS), root("receiver", 4 * SEND_NS), root("other", 0)],
        "page_bytes": 4096,
        **_life(segments),
        "gate": gate,
        "events": [_event(name, counted, running) for name in dict.fromkeys((*USUAL, *counted))],
        "read_cost": READ_COST if counted else None,
    }
    record["run"] |= {"tier": "exact", "tier_reason": f"function hooks: {len(HOOKED)} by fentry"}
    record["hooks"] += [
        hook_row(name, category=category, required=name in ("send", "receive"))
        for name, category in HOOKED.items()
    ]
    record["loss"] |= {
        "functions_unbalanced": 0,
        "recursion_splice": {"count": None, "reason": "this kernel does not count it"},
    }
    return record


def _life(segments: list[Record]) -> Record:
    """A third of the copies ran on the receiver; half of the notifications came before the send returned."""
    zerocopy = [s["sender"]["zerocopy"] for s in segments if s["sender"]["zerocopy"]]
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

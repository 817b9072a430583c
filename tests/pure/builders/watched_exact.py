# SPDX-License-Identifier: GPL-2.0-only
"""A watched program with function hooks: its section `functions` balances with the segments of its phase."""

from typing import Any

from .exact import HOOKED, SEND_NS
from .kernel import hook_row
from .watched import EDGE_CALLS, PHASES, SIZE, watched_record

Record = dict[str, Any]


def watched_with_functions(
    *, copied: int = 0, receives: int = 0, phases: tuple[str, ...] = (*PHASES, "functions"), **options: Any
) -> Record:
    """Return watched_record() with a phase of function hooks, which may be one phase of all instruments.

    While other hooks are attached or detached, function hooks count half of the calls.
    """
    record = watched_record(copied=copied, receives=receives, phases=phases, **options)
    segments = [s for s in record["run"]["segments"] if "functions" in s["phase"]]
    calls = sum(s["sides"]["target"]["send_calls"] for s in segments) + EDGE_CALLS * len(segments)
    (sent,) = [r for r in record["volume"] if "functions" in r["phase"] and r["direction"] == "send"]
    zerocopy = sent["zerocopy_calls"] > 0
    referenced = zerocopy or sent["syscall"] == "sendfile"
    deferred = calls * copied // 100 if zerocopy else 0

    def cell(context: str, category: str, count: int, size: int, self_ns: int) -> Record:
        return {
            **{"side": "target", "context": context, "category": category, "calls": count},
            **{"bytes": count * size, "timed_calls": count, "self_ns": self_ns if count else 0},
            **{"self_ns_squared": 0.0, "counters": {}},
        }

    cells = [
        cell("process", "pin" if referenced else "copy_in", calls, SIZE, SEND_NS),
        cell("softirq", "deferred", deferred, SIZE, SEND_NS),
        cell("process", "copy_out", calls if receives else 0, receives, SEND_NS),
    ]
    owner = {"owner_side": "target", "current_side": "target", "context": "softirq"}
    completion = {"side": "target", "copied": deferred, "zerocopied": calls - deferred}
    record["functions"] = {
        "cells": cells,
        "gate": 1,
        "events": [],
        "read_cost": None,
        "owners": [{**owner, "calls": deferred, "bytes": deferred * SIZE}] if deferred else [],
        "completions": [completion] if zerocopy else [],
        "completion_latency": [],
    }
    record["run"] |= {"tier": "exact", "tier_reason": f"function hooks: {len(HOOKED)} by fentry"}
    record["hooks"] += map(hook_row, HOOKED)
    return record

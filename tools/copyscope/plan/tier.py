"""Which tier a run is of, exact (functions are hooked) or sampled; what cannot be attached; and why. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from copyscope.plan.gate import Gate
from copyscope.record.hooks import ABSENT, WORKS
from copyscope.record.session_result import Tier

# The ways of hooking a function; the tracepoints beside them are hooked by tp_btf.
HOW = ("fentry", "kprobe.multi", "kprobe", "call-site")


def gated(tier: Tier, gate: Gate) -> Tier:
    """The same where functions are hooked, with which of the calls are timed, and why."""
    return replace(tier, reason=f"{tier.reason}; {gate.reason}") if tier.exact else tier


def choose_tier(wanted: bool, hooks: Iterable[Mapping[str, Any]], *, by_name: bool = False) -> Tier:
    """What the collector could hook decides, never the version of the kernel.

    Kprobes are taken only when functions were asked for `by_name`: to attach them takes seconds (decision
    004), and one that fires while another is at work on its CPU is a loss (bpf_prog_active).
    """
    if not wanted:
        return Tier(False, "function hooks: not asked for")
    rows = [hook for hook in hooks if hook["instrument"] == "functions"]
    # Where a send and a receive begin, and the tracepoints that stop a task's clock and follow softirqs.
    required = [row for row in rows if row["required"]]
    if not required:
        return Tier(False, "function hooks: this collector has none")
    for row in required:
        if row["state"] not in WORKS:
            return Tier(False, f"function hooks: refused by this kernel ({row['symbol']}: {row['reason']})")
        if row["how"] == "kprobe" and not by_name:
            return Tier(
                False,
                f"function hooks: {row['symbol']} only by kprobe, which is slow to attach and misses calls "
                "in softirqs; --instruments sampler,functions uses it anyway",
            )
    ways = Counter(row["how"] for row in rows if row["how"] in HOW)
    counts = ", ".join(f"{count} by {way}" for way, count in sorted(ways.items()))
    left_out = sorted(row["id"] for row in rows if row["state"] in ABSENT)
    without = f"; not hooked: {', '.join(left_out)}" if left_out else ""
    return Tier(True, f"function hooks: {counts}{without}")

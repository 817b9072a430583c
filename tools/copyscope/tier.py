"""Which tier a run is of: exact (functions are hooked), or sampled; and why. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Where a send and a receive begin: without both there is nothing to charge time to.
ROOTS = ("send", "receive")
# The ways of hooking a function; the tracepoints beside them are hooked by tp_btf.
HOW = ("fentry", "kprobe.multi", "kprobe", "call-site")


@dataclass(frozen=True)
class Tier:
    """The tier and the reason for it, in one clause."""

    exact: bool
    reason: str

    @property
    def name(self) -> str:
        return "exact" if self.exact else "sampled"


def choose_tier(wanted: bool, hooks: Iterable[Mapping[str, Any]], *, by_name: bool = False) -> Tier:
    """What the collector could hook decides, never the version of the kernel.

    Kprobes are taken only when functions were asked for `by_name`: each waits for a grace period when it is
    detached, 1.5 s for all of them, ten times as long as a segment (METHOD.md, Time: function hooks).
    """
    if not wanted:
        return Tier(False, "function hooks: not asked for")
    rows = {hook["id"]: hook for hook in hooks if hook["instrument"] == "functions"}
    for root in ROOTS:
        row = rows.get(root)
        if row is None or row["state"] not in ("available", "attached"):
            why = f"{row['symbol']}: {row['reason']}" if row else f"{root}: no such hook"
            return Tier(False, f"function hooks: refused by this kernel ({why})")
        if row["how"] == "kprobe" and not by_name:
            return Tier(
                False,
                f"function hooks: {row['symbol']} by kprobe only: too slow to switch between segments; "
                "--instruments sampler,functions takes them all the same",
            )
    # The tracepoints that stop a task's clock and follow softirqs are needed as well.
    for row in rows.values():
        if row["required"] and row["state"] not in ("available", "attached"):
            return Tier(False, f"function hooks: of no use on this kernel ({row['symbol']}: {row['reason']})")
    ways = Counter(row["how"] for row in rows.values() if row["how"] in HOW)
    counts = ", ".join(f"{count} by {way}" for way, count in sorted(ways.items()))
    left_out = sorted(row["id"] for row in rows.values() if row["state"] in ("missing", "refused"))
    without = f"; not hooked: {', '.join(left_out)}" if left_out else ""
    return Tier(True, f"function hooks: {counts}{without}")

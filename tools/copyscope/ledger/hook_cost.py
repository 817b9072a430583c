# SPDX-License-Identifier: GPL-2.0-only
"""Estimate of the CPU time that byte-counting hooks add to a watched program. Pure.

These hooks stay attached for the whole watch, so no segment of the watch shows their cost.
"""

from copyscope.record.measured import Measured
from copyscope.record.segments import measured, target_sum, wall_ns

# Time in ns that the hook adds to a send or receive call, with the entry of its BPF program. Linux 6.18 takes
# 164 to 170 ns (docs/dev/decisions/010-watching.md).
HOOK_NS = 165
# Minimum share (0..1) of the CPU time that a screen mentions.
MENTIONED_MIN = 0.01


def hook_share(raw: Measured) -> float | None:
    """Return the share (0..1) of a watched program's CPU time in byte-counting hooks; None if unknown."""
    target, segments = raw.target, measured(raw.run.segments)
    if target is None or not target.span_s:
        return None
    cpu_ns = target_sum(segments, lambda totals: totals.process_cpu_ns)
    if not cpu_ns:
        return None
    cpus = cpu_ns / wall_ns(segments)
    calls_per_s = (target.send_calls + target.receive_calls) / target.span_s
    return min(1.0, calls_per_s * HOOK_NS / 1e9 / cpus)


def hook_text(raw: Measured) -> str:
    """Return text such as `counting its bytes takes about 11 % of its CPU time`, or "" if negligible."""
    share = hook_share(raw)
    if share is None or share < MENTIONED_MIN:
        return ""
    return f"counting its bytes takes about {share * 100:.0f} % of its CPU time"

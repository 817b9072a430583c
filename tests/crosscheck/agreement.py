# SPDX-License-Identifier: GPL-2.0-only
"""Compare copyscope's counts with those of other tools, quantity by quantity. Pure.

copyscope and the tools observe different segments of the same traffic, so each quantity is divided by
messages or bytes. Exact quantities must then be equal; times and shares must agree within an interval.
"""

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from copyscope.base.stats import LEVEL, normal_quantile
from copyscope.record.store import Document

Quantities = Mapping[str, float]

DRAWS = 2000
# Neighbouring samples are correlated: the variance of a share is this many times that of independent samples.
DESIGN_EFFECT = 2.0
# Shares below this are not compared, because tools sample each other's work differently.
SHARE_MIN = 0.02
# Shares this close agree, because the segments differ.
SHARE_TOLERANCE = 0.03
SHARE = "share of CPU time"
# An interval whose ends differ by more than this factor decides nothing.
WIDEST = 3.0
# Category of the work of sampling itself: its code differs, so it is not compared.
NOT_COMPARED = "instruments"
# A tool's own cost is part of the times that it measures: two tracepoint programs for each call.
TIME_TOLERANCE = 0.15
# Softirq work is shorter, and two programs run at each softirq.
SOFTIRQ_TOLERANCE = 0.25
EXACT_TOLERANCE = 0.001
# How TCP cuts a stream into packets depends on its speed, and so on the observer.
CUT_TOLERANCE = 0.25
# System calls that each call tcp_sendmsg() once.
ONE_SEND = {"sendmsg", "sendto"}


@dataclass(frozen=True)
class Observation:
    """Quantities that one observer counted, and the traffic of its segments."""

    messages: int
    bytes: int
    wall_ns: int
    quantities: Quantities


@dataclass(frozen=True)
class Row:
    """Comparison of two tools' values. `agrees` is None, with the reason, if they could not be compared.

    `category`: account of a share, by its name in the record.
    """

    quantity: str
    unit: str
    peer: str
    ours: float | None
    theirs: float | None
    ratio: float | None
    low: float | None
    high: float | None
    agrees: bool | None
    reason: str | None
    category: str | None = None


@dataclass(frozen=True)
class Kind:
    """A quantity: its divisor, and how far the two values may differ."""

    label: str
    unit: str
    per: str  # messages | bytes
    tolerance: float


KINDS = {
    "send_calls": Kind("send syscalls", "per message", "messages", EXACT_TOLERANCE),
    "send_bytes": Kind("bytes taken by the socket", "per byte sent", "bytes", EXACT_TOLERANCE),
    "copy_out_bytes": Kind("bytes copied out", "per byte sent", "bytes", EXACT_TOLERANCE),
    "deferred_bytes": Kind("bytes copied by skb_copy_ubufs", "per byte sent", "bytes", 0.01),
    "pinned_bytes": Kind("bytes referenced", "per byte sent", "bytes", EXACT_TOLERANCE),
    "tcp_sendmsg_calls": Kind("calls of tcp_sendmsg", "per message", "messages", EXACT_TOLERANCE),
    "tcp_sendmsg_bytes": Kind("bytes taken by tcp_sendmsg", "per byte sent", "bytes", EXACT_TOLERANCE),
    "deferred_calls": Kind("calls of skb_copy_ubufs", "per message", "messages", CUT_TOLERANCE),
    "send_ns": Kind("time in send syscalls", "ns per message", "messages", TIME_TOLERANCE),
    "softirq_ns": Kind("softirq time in sends", "ns per message", "messages", SOFTIRQ_TOLERANCE),
}


def ours(record: Document) -> list[Observation]:
    """Return one observation per phase of copyscope's own record, because each phase has its own segments."""
    observations = []
    for phase, quantities in (
        ("bytes", _from_bytes(record)),
        ("ledger", _from_samples(record)),
        ("calls", _from_calls(record)),
        ("functions", _from_functions(record)),
    ):
        segments = [s for s in record["run"]["segments"] if s["phase"] == phase]
        if segments and quantities:
            messages, sent = (
                sum(int(s["sides"]["sender"][key]) for s in segments) for key in ("messages", "bytes")
            )
            wall_ns = sum(int(s["end_ns"]) - int(s["begin_ns"]) for s in segments)
            observations.append(Observation(messages, sent, wall_ns, quantities))
    return observations


def _from_bytes(record: Document) -> Quantities:
    rows = {(row["hook"], row["side"]): row for row in record["bytes"]}
    quantities = {"copy_out_bytes": float(rows["copy_out_bytes", "receiver"]["bytes"])}
    if ("send_bytes", "sender") in rows:
        quantities["send_bytes"] = float(rows["send_bytes", "sender"]["bytes"])
    return quantities


def _from_samples(record: Document) -> Quantities:
    samples: Counter[str] = Counter()
    for row in record["samples"]:
        if row["side"] == "sender" and row["event"] == "cpu-clock":
            samples[f"samples:{row['category']}"] += row["samples"]
    return {name: float(count) for name, count in samples.items()}


def _from_calls(record: Document) -> Quantities:
    rows = [r for r in record["calls"] if r["side"] == "sender" and r["syscall"].startswith("send")]
    times = [(r["on_cpu_ns"], r["softirq_ns"], r["blocked_ns"]) for r in rows]
    quantities = {"send_calls": float(sum(r["calls"] for r in rows))} if rows else {}
    if rows and {row["syscall"] for row in rows} <= ONE_SEND:
        quantities["tcp_sendmsg_calls"] = quantities["send_calls"]
        quantities["tcp_sendmsg_bytes"] = float(sum(r["bytes"] for r in rows))
    if rows and all(part is not None for row in times for part in row):
        quantities["send_ns"] = float(sum(sum(row) for row in times))
        quantities["softirq_ns"] = float(sum(row[1] for row in times))
    return quantities


def _from_functions(record: Document) -> Quantities:
    section = record.get("functions")
    if section is None:
        return {}
    cells = section["cells"]
    quantities = {
        f"{name}_bytes": float(sum(c["bytes"] for c in cells if c["category"] == category))
        for name, category in (("deferred", "deferred"), ("pinned", "pin"))
    }
    quantities["deferred_calls"] = float(sum(c["calls"] for c in cells if c["category"] == "deferred"))
    return quantities


def compare(mine: Sequence[Observation], peer: str, theirs: Sequence[Observation], seed: int) -> list[Row]:
    """Compare every quantity that copyscope and one tool both have; `theirs` has one item per segment."""
    rows = []
    for name, kind in KINDS.items():
        values = [_per(theirs_here, name, kind) for theirs_here in _having(theirs, name)]
        own = next((_per(own_here, name, kind) for own_here in _having(mine, name)), None)
        if not values or (own is None and not any(values)):
            continue
        middle = median(values)
        if own is None or own == 0:
            both_zero = own == 0 and not any(values)
            reason = None if both_zero else "nothing to compare it with in this run"
            agrees = True if both_zero else None
            rows.append(Row(kind.label, kind.unit, peer, own, middle, None, None, None, agrees, reason))
            continue
        low, high = _interval([value / own for value in values], seed)
        agrees, reason = low <= 1 + kind.tolerance and high >= 1 - kind.tolerance, None
        if not agrees and kind.unit == "ns per message":
            agrees, reason = _explained(middle - own, _slowdown_ns(mine, theirs, name))
        if reason is None:
            agrees, reason = _or_unknown(agrees, low, high)
        rows.append(Row(kind.label, kind.unit, peer, own, middle, middle / own, low, high, agrees, reason))
    return rows + _compare_shares(mine, peer, theirs)


def _having(observations: Sequence[Observation], name: str) -> Iterator[Observation]:
    return (observation for observation in observations if name in observation.quantities)


def _or_unknown(agrees: bool, low: float, high: float) -> tuple[bool | None, str | None]:
    """Replace an agreement by None if its interval is too wide to decide."""
    if agrees and high > WIDEST * low:
        return None, f"too few samples to tell: the interval spans more than a factor of {WIDEST:g}"
    return agrees, None


def _explained(difference_ns: float, slowdown_ns: float) -> tuple[bool, str | None]:
    """Accept a time difference that the slower observer's own cost explains, and return the reason."""
    if 0 < difference_ns <= slowdown_ns:
        return True, "it slows each message down by about that: its times include its own cost"
    if slowdown_ns <= difference_ns < 0:
        return True, "our hooks slow each message down by about that: our times include their cost"
    return False, None


def _slowdown_ns(mine: Sequence[Observation], theirs: Sequence[Observation], name: str) -> float:
    """Return how much longer a message takes under the tool than under copyscope's instrument."""
    own = next(_having(mine, name))
    peer_ns = median([segment.wall_ns / segment.messages for segment in theirs])
    return peer_ns - own.wall_ns / own.messages


def _per(observation: Observation, name: str, kind: Kind) -> float:
    return observation.quantities[name] / (
        observation.messages if kind.per == "messages" else observation.bytes
    )


def _interval(ratios: Sequence[float], seed: int) -> tuple[float, float]:
    """Return the 95 % interval of the mean ratio over a tool's segments, by a seeded bootstrap."""
    generator = random.Random(seed)
    count = len(ratios)
    means = sorted(sum(generator.choices(ratios, k=count)) / count for _ in range(DRAWS))
    cuts = quantiles(means, n=40, method="inclusive")
    return cuts[0], cuts[-1]


def _compare_shares(mine: Sequence[Observation], peer: str, theirs: Sequence[Observation]) -> list[Row]:
    left, right = _counts(mine), _counts(theirs)
    if not left or not right:
        return []
    rows = []
    n, m = sum(left.values()), sum(right.values())
    compared = [name for name in left if max(left[name] / n, right.get(name, 0.0) / m) >= SHARE_MIN]
    # One of twenty 95 % intervals misses the truth, so each is widened (Bonferroni).
    z = normal_quantile(1 - (1 - LEVEL) / 2 / max(1, len(compared)))
    for category in sorted(compared, key=lambda name: -left[name]):
        p, q = left[category] / n, right.get(category, 0.0) / m
        near = abs(p - q) <= SHARE_TOLERANCE
        if q == 0:
            rows.append(Row(SHARE, "of samples", peer, p, q, None, None, None, near, None, category))
            continue
        pooled = (left[category] + right[category]) / (n + m)
        error = z * math.sqrt(DESIGN_EFFECT * (1 - pooled) / pooled * (1 / n + 1 / m))
        low, high = q / p * math.exp(-error), q / p * math.exp(error)
        agrees, reason = _or_unknown(near or low <= 1 <= high, low, high)
        rows.append(Row(SHARE, "of samples", peer, p, q, q / p, low, high, agrees, reason, category))
    return rows


def _counts(observations: Sequence[Observation]) -> dict[str, float]:
    """Sum the samples of each category."""
    counts: dict[str, float] = {}
    for observation in observations:
        for key, value in observation.quantities.items():
            name = key.removeprefix("samples:")
            if name not in (key, NOT_COMPARED):
                counts[name] = counts.get(name, 0.0) + value
    return counts

"""Ours against theirs, quantity by quantity. Pure.

Both sides saw different segments of the same traffic, so everything is compared per message (or per byte):
exact quantities must then be equal, times and shares agree within an interval.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from copyscope.record.segments import Record
from copyscope.stats import LEVEL, normal_quantile

Quantities = Mapping[str, float]

DRAWS = 2000
# Neighbouring samples are alike: a share's variance is that much larger than a coin's.
DESIGN_EFFECT = 2.0
# Two tools never sample each other's own work the same way: shares this small are not compared.
SHARE_MIN = 0.02
# Nor do they see the same segments.
SHARE_TOLERANCE = 0.03
SHARE = "share of CPU time"
# An interval from one number to so many times it says nothing.
WIDEST = 3.0
# The taking of a sample itself: not the same code, so not compared.
NOT_COMPARED = "instruments"
# What a tool adds to the times that it takes itself: two tracepoint programs per call, more where it is slow.
TIME_TOLERANCE = 0.15
# Of softirq work there is less, and two programs run at each.
SOFTIRQ_TOLERANCE = 0.25
EXACT_TOLERANCE = 0.001
# How a stream is cut into packets depends on how fast it flows, and so on who watches.
CUT_TOLERANCE = 0.25
# Of which each is one call of tcp_sendmsg().
ONE_SEND = {"sendmsg", "sendto"}


@dataclass(frozen=True)
class Seen:
    """What one tool counted in one segment, and how much traffic that was."""

    messages: int
    bytes: int
    wall_ns: int
    quantities: Quantities


@dataclass(frozen=True)
class Row:
    """One comparison. `agrees` is None when there was nothing to compare, with the reason. `category`: of a
    share, by its name in the record.
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
    """A quantity: what it is divided by, and how far the two may be apart."""

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


def ours(record: Record) -> list[Seen]:
    """Our own quantities: one Seen per phase, since each instrument saw the traffic of its own phase."""
    found = []
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
            found.append(Seen(messages, sent, wall_ns, quantities))
    return found


def _from_bytes(record: Record) -> Quantities:
    rows = {(row["hook"], row["side"]): row for row in record["bytes"]}
    found = {"copy_out_bytes": float(rows["copy_out_bytes", "receiver"]["bytes"])}
    if ("send_bytes", "sender") in rows:
        found["send_bytes"] = float(rows["send_bytes", "sender"]["bytes"])
    return found


def _from_samples(record: Record) -> Quantities:
    found: dict[str, float] = {}
    for row in record["samples"]:
        if row["side"] == "sender" and row["event"] == "cpu-clock":
            key = f"samples:{row['category']}"
            found[key] = found.get(key, 0.0) + row["samples"]
    return found


def _from_calls(record: Record) -> Quantities:
    rows = [r for r in record["calls"] if r["side"] == "sender" and r["syscall"].startswith("send")]
    times = [(r["on_cpu_ns"], r["softirq_ns"], r["blocked_ns"]) for r in rows]
    found = {"send_calls": float(sum(r["calls"] for r in rows))} if rows else {}
    if rows and {row["syscall"] for row in rows} <= ONE_SEND:
        found["tcp_sendmsg_calls"] = found["send_calls"]
        found["tcp_sendmsg_bytes"] = float(sum(r["bytes"] for r in rows))
    if rows and all(part is not None for row in times for part in row):
        found["send_ns"] = float(sum(sum(row) for row in times))
        found["softirq_ns"] = float(sum(row[1] for row in times))
    return found


def _from_functions(record: Record) -> Quantities:
    section = record.get("functions")
    if section is None:
        return {}
    cells = section["cells"]
    found = {
        f"{name}_bytes": float(sum(c["bytes"] for c in cells if c["category"] == category))
        for name, category in (("deferred", "deferred"), ("pinned", "pin"))
    }
    found["deferred_calls"] = float(sum(c["calls"] for c in cells if c["category"] == "deferred"))
    return found


def compare(mine: Sequence[Seen], peer: str, theirs: Sequence[Seen], seed: int) -> list[Row]:
    """Every quantity that both have, for one peer; `theirs` are its segments."""
    rows = []
    for name, kind in KINDS.items():
        values = [_per(seen, name, kind) for seen in theirs if name in seen.quantities]
        own = next((_per(seen, name, kind) for seen in mine if name in seen.quantities), None)
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


def _or_unknown(agrees: bool, low: float, high: float) -> tuple[bool | None, str | None]:
    """What lies within an interval that everything lies in does not agree."""
    if agrees and high > WIDEST * low:
        return None, f"too few samples to tell: the interval spans more than a factor of {WIDEST:g}"
    return agrees, None


def _explained(difference_ns: float, slowdown_ns: float) -> tuple[bool, str | None]:
    """Whether the slower of the two has its own cost in its times, and no more than that."""
    if 0 < difference_ns <= slowdown_ns:
        return True, "it slows each message down by about that: its times include its own cost"
    if slowdown_ns <= difference_ns < 0:
        return True, "our hooks slow each message down by about that: our times include their cost"
    return False, None


def _slowdown_ns(mine: Sequence[Seen], theirs: Sequence[Seen], name: str) -> float:
    """How much longer a message takes under the peer than under our instrument: an observer's own cost."""
    own = next(seen for seen in mine if name in seen.quantities)
    peer_ns = median([seen.wall_ns / seen.messages for seen in theirs])
    return peer_ns - own.wall_ns / own.messages


def _per(seen: Seen, name: str, kind: Kind) -> float:
    return seen.quantities[name] / (seen.messages if kind.per == "messages" else seen.bytes)


def _interval(ratios: Sequence[float], seed: int) -> tuple[float, float]:
    """95 % of the mean ratio over a peer's segments, by a seeded bootstrap."""
    generator = random.Random(seed)
    count = len(ratios)
    means = sorted(sum(generator.choices(ratios, k=count)) / count for _ in range(DRAWS))
    cuts = quantiles(means, n=40, method="inclusive")
    return cuts[0], cuts[-1]


def _compare_shares(mine: Sequence[Seen], peer: str, theirs: Sequence[Seen]) -> list[Row]:
    left, right = _counts(mine), _counts(theirs)
    if not left or not right:
        return []
    rows = []
    n, m = sum(left.values()), sum(right.values())
    compared = [name for name in left if max(left[name] / n, right.get(name, 0.0) / m) >= SHARE_MIN]
    # Of twenty true intervals of 95 % one misses; so many at once must each be wider (Bonferroni).
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


def _counts(seen: Sequence[Seen]) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in seen:
        for key, value in one.quantities.items():
            name = key.removeprefix("samples:")
            if name not in (key, NOT_COMPARED):
                found[name] = found.get(name, 0.0) + value
    return found

"""What a strategy costs as a function of the message size, fitted on the ledger rows. Pure.

The CPU time of a message is a sum of groups of ledger rows, and each group depends on few things (DRIVERS):
a copy on calls and bytes, pinning on calls and pages, completion on calls and notifications. Fitting group by
group keeps them apart: pages and bytes grow together, and a fit of their sum could not tell one from the
other. No cost is negative, so each fit is a least squares with two coefficients >= 0, on residuals relative
to the whole cost of a message: a small message counts as much as a large one.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import mul

from copyscope.compare.estimates import Point, row_costs
from copyscope.compare.metrics import read
from copyscope.record.segments import Record, segments_of, select, total, zerocopy_total

PAGE_BYTES = 4096

# accounts and stages of each group; what is named nowhere is `rest`
GROUPS: dict[str, frozenset[str]] = {
    "copies": frozenset(("gather", "copy_in", "deferred", "silent", "copy_out")),
    "pin": frozenset(("pin",)),
    "completion": frozenset(("completion",)),
    "mapped": frozenset(("mapped",)),
    "cipher": frozenset(("encrypt", "decrypt")),
    "packets": frozenset(("skb_alloc", "tcp_ip", "device", "softirq")),
    "rest": frozenset(),
}
DRIVERS: dict[str, tuple[str, str]] = {
    "copies": ("call", "byte"),
    "pin": ("call", "page"),
    "completion": ("call", "notification"),
    "mapped": ("call", "page"),
    "cipher": ("call", "byte"),
    "packets": ("call", "byte"),
    "rest": ("call", "byte"),
    "time": ("call", "byte"),
}
DRIVER_NAMES = ("call", "byte", "page", "notification")
# What is added up for a quantity (a metric): CPU time of sides, or elapsed time of a message.
PARTS: dict[str, tuple[str, ...]] = {
    "goodput_gbps": ("wall",),
    "sender_cpu_ns_per_kib": ("sender",),
    "receiver_cpu_ns_per_kib": ("receiver",),
    "system_cpu_ns_per_kib": ("sender", "receiver", "other"),
}
SIDES = PARTS["system_cpu_ns_per_kib"]

Coefficients = dict[str, dict[str, float]]  # group -> driver -> ns


@dataclass(frozen=True)
class Size:
    """One strategy at one message size: what drives its cost, and the cost in each repeat.

    `totals`: part -> repeat -> ns per message. `shares`: side -> repeat -> group -> part of its CPU time,
    of the repeats that sampled that side.
    """

    size_bytes: int
    drivers: Mapping[str, float]
    totals: Mapping[str, Mapping[int, float]]
    shares: Mapping[str, Mapping[int, Mapping[str, float]]]


def measure(point: Point) -> Size:
    """What the fit needs to know of a point."""
    sizes = [float(record["workload"]["size_bytes"]) for record in point.records]
    totals: dict[str, dict[int, float]] = {part: {} for part in ("wall", *SIDES)}
    shares: dict[str, dict[int, dict[str, float]]] = {side: {} for side in SIDES}
    for record, size in zip(point.records, sizes, strict=True):
        repeat = int(record["run"]["repeat"])
        goodput = read(record, "goodput_gbps").value
        if goodput:
            totals["wall"][repeat] = size * 8 / goodput
        for side in SIDES:
            spent = record["sides"][side]["cpu_ns"]
            messages = total(select(segments_of(record), "ledger"), "sender", "messages")
            if spent is not None and messages:
                totals[side][repeat] = spent / messages
            found = group_shares(record, side)
            if found:
                shares[side][repeat] = found
    return Size(int(sizes[0]), _drivers(point.records), totals, shares)


def group_shares(record: Record, side: str) -> dict[str, float]:
    """Group -> its part of the side's rows; empty when nothing of the side was sampled."""
    if not record["sides"][side]["samples"]:
        return {}
    found = dict.fromkeys(GROUPS, 0.0)
    for (name, whose, _), cost in row_costs(record).items():
        if whose == side:
            found[group_of(name)] += cost
    whole = sum(found.values())
    return {group: cost / whole for group, cost in found.items()} if whole else {}


def group_of(name: str) -> str:
    """The group of an account or stage."""
    return next((group for group, names in GROUPS.items() if name in names), "rest")


def _drivers(records: Sequence[Record]) -> dict[str, float]:
    messages = calls = notifications = 0
    for record in records:
        ran = segments_of(record)
        segments = select(ran, "ledger") or select(ran, "unprobed")
        messages += total(segments, "sender", "messages")
        calls += total(segments, "sender", "calls")
        notifications += zerocopy_total(segments, "notifications") or 0
    work = records[0]["workload"]
    return {
        "call": calls / messages if messages else 0.0,
        "byte": float(work["size_bytes"]),
        "page": pages(work["size_bytes"], work["fields"], work["align"]),
        "notification": notifications / messages if messages else 0.0,
    }


def pages(size_bytes: float, fields: int, align: str) -> float:
    """Pages of 4 KiB that a message of so many fields touches; for heap alignment on average."""
    field = size_bytes / fields
    if align == "page":
        return fields * max(1.0, math.ceil(field / PAGE_BYTES))
    # a block that begins anywhere in a page crosses one more border every 4096 bytes
    return fields * (1 + max(0.0, field - 1) / PAGE_BYTES)


def drivers_at(sizes: Sequence[Size], fields: int, align: str) -> Callable[[float], tuple[float, ...]]:
    """How much one message of a size has of each of DRIVER_NAMES: measured at some sizes, in between of them
    by the logarithm of the size.
    """
    logs = [math.log(size.size_bytes) for size in sizes]

    def between(name: str, log: float) -> float:
        values = [size.drivers[name] for size in sizes]
        above = bisect_left(logs, log)
        if above in (0, len(values)):
            return values[min(above, len(values) - 1)]
        low, high = logs[above - 1], logs[above]
        return values[above - 1] + (values[above] - values[above - 1]) * (log - low) / (high - low)

    def at(size_bytes: float) -> tuple[float, ...]:
        call, notification = (between(name, math.log(size_bytes)) for name in ("call", "notification"))
        return call, size_bytes, pages(size_bytes, fields, align), notification

    return at


class Fit:
    """Weighted least squares with two coefficients >= 0: prepared once, solved for many measurements."""

    def __init__(self, rows: Sequence[tuple[float, float]], weights: Sequence[float]) -> None:
        a, b = ([row[at] for row in rows] for at in (0, 1))
        self._a, self._b = ([x * w * w for x, w in zip(xs, weights, strict=True)] for xs in (a, b))
        self._aa = sum(map(mul, self._a, a))
        self._ab = sum(map(mul, self._a, b))
        self._bb = sum(map(mul, self._b, b))

    def solve(self, values: Sequence[float]) -> tuple[float, float]:
        """The two coefficients; where both drivers say the same, the first gets it."""
        ay = sum(map(mul, self._a, values))
        by = sum(map(mul, self._b, values))
        determinant = self._aa * self._bb - self._ab * self._ab
        if determinant > 1e-12 * self._aa * self._bb:
            first = (ay * self._bb - by * self._ab) / determinant
            second = (by * self._aa - ay * self._ab) / determinant
            if first >= 0 and second >= 0:
                return first, second
        # on the border one of them is zero; the better of the two explains more of the sum of squares
        first = max(0.0, ay / self._aa) if self._aa else 0.0
        second = max(0.0, by / self._bb) if self._bb else 0.0
        return (first, 0.0) if first * ay >= second * by else (0.0, second)


class Model:
    """The cost of a message of one strategy with one number of threads, part by part."""

    def __init__(self, sizes: Sequence[Size], part: str, reference: Sequence[float]) -> None:
        """`reference`: measured cost at each size in ns per message, which the residuals are relative to."""
        weights = [1 / value if value > 0 else 0.0 for value in reference]
        self._fits = {
            group: (drivers, Fit([(s.drivers[drivers[0]], s.drivers[drivers[1]]) for s in sizes], weights))
            for group, drivers in DRIVERS.items()
            if (group == "time") == (part == "wall")
        }

    def solve(self, costs: Mapping[str, Sequence[float]]) -> Coefficients:
        """Group -> driver -> ns, from group -> cost at each size (ns per message)."""
        found = {}
        for group, (drivers, fit) in self._fits.items():
            first, second = fit.solve(costs[group])
            found[group] = {drivers[0]: first, drivers[1]: second}
        return found


def collapse(coefficients: Iterable[Coefficients]) -> tuple[float, ...]:
    """The sum of all groups as ns per unit of each of DRIVER_NAMES: prediction is linear in them."""
    found = dict.fromkeys(DRIVER_NAMES, 0.0)
    for groups in coefficients:
        for prices in groups.values():
            for driver, cost in prices.items():
                found[driver] += cost
    return tuple(found.values())


def predict(prices: Sequence[float], drivers: Sequence[float]) -> float:
    """ns per message, from `collapse` and `drivers_at`."""
    return float(sum(map(mul, prices, drivers)))

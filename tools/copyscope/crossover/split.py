"""What makes the difference between two ways at one size: their CPU time by groups of ledger rows. Pure."""

from collections.abc import Sequence

from copyscope.compare.composition import parts_of, typical, unsampled
from copyscope.compare.estimates import Point

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


def group_of(name: str) -> str:
    """The group of an account or stage."""
    return next((group for group, names in GROUPS.items() if name in names), "rest")


def split(first: Point, second: Point, sides: Sequence[str]) -> dict[str, float]:
    """ns per KiB that the second costs more (less: negative), by group of rows; their `sum` at last."""
    # time that one of them cannot divide is not divided in the other: else it would look like a saving
    blind = [*unsampled(first.records), *unsampled(second.records)]
    found = dict.fromkeys(GROUPS, 0.0)
    for point, sign in ((first, -1), (second, 1)):
        for name, cost in typical(parts_of(point.records, blind, sides)).items():
            found[group_of(name)] += sign * cost
    rounded = {group: round(cost, 3) for group, cost in found.items()}
    return {**rounded, "sum": round(sum(rounded.values()), 3)}

# SPDX-License-Identifier: GPL-2.0-only
"""Complete records with known costs, which comparisons must find again.

    priced("zero_copy", 4096, {"copies": {"call": 900, "byte": 0.2}, "pin": {"page": 80}})

Prices are in ns: group of ledger rows -> driver -> ns per unit of the driver. The numbers balance, except in
sections that no comparison reads.
"""

from functools import cache
from typing import Any

from . import raw_record
from .documents import derive

Record = dict[str, Any]
Prices = dict[str, dict[str, float]]

MESSAGES = 20_000
# Side -> group of rows -> account or stage, and its context.
ROWS = {
    "sender": {
        "copies": ("copy_in", "process"),
        "gather": ("gather", "user"),
        "deferred": ("deferred", "softirq"),
        "pin": ("pin", "process"),
        "completion": ("completion", "process"),
        "cipher": ("encrypt", "process"),
        "packets": ("tcp_ip", "process"),
        "rest": ("syscall", "process"),
    },
    "receiver": {
        "copies": ("copy_out", "process"),
        "mapped": ("mapped", "process"),
        "packets": ("tcp_ip", "softirq"),
        "rest": ("wakeup_sched", "process"),
    },
}
ACCOUNTS = frozenset(("copy_in", "gather", "deferred", "pin", "completion", "copy_out", "mapped", "encrypt"))
UNPRICED = ("share", "cycles", "instructions", "l1d_misses", "llc_misses", "ci")
RECEIVER: Prices = {"copies": {"byte": 0.05}, "packets": {"call": 400.0}, "rest": {"call": 300.0}}


def drivers(impl: str, size: int, fields: int) -> dict[str, float]:
    """Return the units of each driver in one message: calls, bytes, pages, notifications."""
    return {
        "call": float(fields if impl == "per_field" else 1),
        "byte": float(size),
        "page": fields * pages_touched(size // fields),
        "notification": 0.25 if impl == "zero_copy" else 0.0,
    }


@cache
def pages_touched(length: int) -> float:
    """Return the number of 4 KiB pages of a block of memory, averaged over the addresses of its begin."""
    return sum((at + length - 1) // 4096 + 1 for at in range(4096)) / 4096


@cache
def _base(impl: str) -> Record:
    """Return a record for everything without a price. It is shared, so do not change it in place."""
    return derive(raw_record(impl))


def priced(
    impl: str,
    size: int,
    sender: Prices,
    receiver: Prices | None = None,
    *,
    threads: int = 1,
    repeat: int = 0,
    slower: float = 1.0,
    factors: dict[str, Any] | None = None,
    **sections: Any,
) -> Record:
    """Return a complete record with these prices.

    slower: factor of all costs
    sections: top-level keys of the record that are replaced
    """
    fields = 8
    amount = drivers(impl, size, fields)
    rows = [
        row
        for side, prices in (("sender", sender), ("receiver", receiver or RECEIVER))
        for row in _rows(side, prices, amount, size, slower)
    ]
    cpu_ns = {
        side: sum(row["cpu_ns"] for row in rows if row["side"] == side) for side in ("sender", "receiver")
    }
    wall_ns = int(max(cpu_ns.values()) / threads)
    base = _base(impl)
    segments = [
        _segment(segment, size, int(amount["call"]), wall_ns)
        for segment in base["run"]["segments"]
        if segment["block"] == 0 and segment["phase"] in ("unprobed", "ledger")
    ]
    goodput = MESSAGES * size * 8 / wall_ns
    record: Record = {
        **base,
        "run": {
            **base["run"],
            "id": f"priced-{impl}-{size}-{threads}-{repeat}",
            "experiment": "priced",
            "started": f"2025-01-01T00:00:{repeat:02}+00:00",
            "repeat": repeat,
            "factors": factors or {"impl": impl, "size": size, "threads": threads},
            "segments": segments,
        },
        "workload": {
            **base["workload"],
            "impl": impl,
            "size_bytes": size,
            "fields": fields,
            "threads": threads,
            "align": "heap",
            "mode": "stream",
            "messages": None,
            "receiver": "read",
        },
        "topology": {**base["topology"], "devices": [], "offloads": {}},
        "throughput_gbps": {"unprobed": goodput, "probed": goodput * 0.98, "reasons": {}},
        "sides": {
            side: row | {"cpu_ns": cpu_ns.get(side, 0), "samples": 500 if side in cpu_ns else 0}
            for side, row in base["sides"].items()
        },
        "ledger": [row for row in rows if "account" in row],
        "stages": [row for row in rows if "stage" in row],
        "samples": [],
        "counters": {"sender": {}, "receiver": {}},
        "zerocopy": None,
        "exact": [],
        "verdict": base["verdict"] | {"valid": True, "reasons": []},
    }
    if impl == "zero_copy":
        cause = {"code": "local_delivery", "sentence": "local delivery over veth"}
        copied = "deferred" in sender
        record["zerocopy"] = base["zerocopy"] | {
            "sends": 2 * MESSAGES,
            "copied": 2 * MESSAGES if copied else 0,
            "bytes_sent": 2 * MESSAGES * size,
            "bytes_copied": 2 * MESSAGES * size if copied else 0,
            "bytes_silent": 0,
            "bytes_zero_copy": 0 if copied else MESSAGES * size,
            "notifications": MESSAGES // 2,
            "cause": cause if copied else None,
        }
    return record | sections


def _rows(side: str, prices: Prices, amount: dict[str, float], size: int, slower: float) -> list[Record]:
    rows = []
    for group, price in prices.items():
        name, context = ROWS[side][group]
        cpu_ns = MESSAGES * slower * sum(ns * amount[driver] for driver, ns in price.items())
        account = name in ACCOUNTS
        rows.append(
            {
                "account" if account else "stage": name,
                "side": side,
                "context": context,
                "cpu_ns": cpu_ns,
                "ns_per_kib": cpu_ns / (MESSAGES * size / 1024),
                "samples": 100,
                "method": "sampled",
                **dict.fromkeys(UNPRICED),
                "reasons": dict.fromkeys(UNPRICED, "not priced"),
                **({"bytes": MESSAGES * size, "calls": MESSAGES, "bytes_method": "exact"} if account else {}),
            }
        )
    return rows


def _segment(segment: Record, size: int, calls: int, wall_ns: int) -> Record:
    """Return a segment with its counts replaced by those of this run."""
    totals = {
        "bytes": MESSAGES * size,
        "messages": MESSAGES,
        "calls": MESSAGES * calls,
        "voluntary_switches": 100,
        "involuntary_switches": 5,
    }
    sender = {**segment["sides"]["sender"], **totals, "gather_timed_ns": 0}
    if sender["zerocopy"] is not None:
        notified = dict.fromkeys(("notifications", "errqueue_reads"), MESSAGES // 4)
        sent = {"sends": MESSAGES, "bytes_sent": MESSAGES * size}
        sender["zerocopy"] = {**sender["zerocopy"], **notified, **sent}
    receiver = {**segment["sides"]["receiver"], **totals}
    return {**segment, "begin_ns": 0, "end_ns": wall_ns, "sides": {"sender": sender, "receiver": receiver}}

# SPDX-License-Identifier: GPL-2.0-only
"""Samples of an invented watched program, moved to other accounts and stages."""

from typing import Any

from .watched import SAMPLE_NS, watched_record

Record = dict[str, Any]


def sampled(counts: dict[str, int], period_ns: float = SAMPLE_NS, **options: Any) -> Record:
    """Return a watched program with these samples by category, and a clock that agrees with them.

    Its messages are small, so that no row has more bytes than its time allows to copy.
    """
    raw = watched_record(**{"size": 1024} | options)
    rows = {row["category"]: row for row in raw["samples"]}
    assert set(counts) <= set(rows), set(rows)
    raw["samples"] = [
        {
            **rows[name],
            "samples": count,
            "weight": count * period_ns,
            "weight_squared": count * period_ns**2,
        }
        for name, count in counts.items()
        if count
    ]
    code = raw["user_code"][0] | {"samples": counts.get("user", 0), "copy_samples": 0}
    raw["user_code"] = [code] if counts.get("user") else []
    return with_cpu_ns(raw, sum(counts.values()) * period_ns)


def with_cpu_ns(raw: Record, cpu_ns: float) -> Record:
    """Set the CPU time of all ledger segments together; all other segments have the same per segment."""
    ledger = [row for row in raw["run"]["segments"] if "ledger" in row["phase"]]
    for segment in raw["run"]["segments"]:
        segment["sides"]["target"]["process_cpu_ns"] = round(cpu_ns / len(ledger))
    raw["counters"]["target"]["task-clock"]["value"] = round(cpu_ns)
    return raw


def with_file_reads(raw: Record) -> Record:
    """Add samples in reads of files, as many as in the copy into the kernel."""
    (copy,) = (row for row in raw["samples"] if row["category"] == "copy_in")
    raw["samples"].append({**copy, "symbol": "filemap_read", "category": "file_read", "kind": "account"})
    return raw


def move_samples(raw: Record, category: str, symbol: str, **changes: str) -> Record:
    """Move the samples of TCP, half of all, to another stage or account."""
    row = next(row for row in raw["samples"] if row["category"] == "tcp_ip")
    row |= {"category": category, "symbol": symbol, **changes}
    return raw

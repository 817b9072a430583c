"""The exact tier: what the function hooks counted, one row per function category, side and context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from copyscope.render import units
from copyscope.render.layout import Column, Table, heading
from copyscope.render.zerocopy_life import life_lines
from rich.text import Text


def exact_lines(record: Mapping[str, Any], width: int) -> list[Text]:
    """Nothing when no function was hooked in this run."""
    rows = record["exact"]
    if not rows:
        return []
    note = "functions segments; self time; share = of the side's time in sends, receives and softirq"
    lines = heading("EXACT", note, width)
    table = Table(
        [
            Column("in", right=False, key=True),
            Column("side", right=False, key=True),
            Column("where", right=False),
            Column("calls"),
            Column("bytes"),
            Column("self time"),
            Column("ns/KiB"),
            Column("share"),
        ]
    )
    for row in sorted(rows, key=lambda row: (row["side"] != "sender", row["side"], -row["self_ns"])):
        table.add(
            row["category"],
            row["side"],
            row["context"],
            units.format_count(row["calls"]),
            _moved(row, record),
            units.format_ns(row["self_ns"]),
            None if row["ns_per_kib"] is None else f"{row['ns_per_kib']:,.1f}",
            None if row["share"] is None else f"{row['share'] * 100:.1f} %",
        )
    return lines + table.lines(width) + life_lines(record, width)


def _moved(row: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """Bytes; of the page look-up, where bytes are whole pages, those."""
    if not row["bytes"]:
        return "-"
    if row["category"] == "pin_pages":
        return f"{units.format_count(row['bytes'] // record['functions']['page_bytes'])} pages"
    return units.format_bytes(row["bytes"])

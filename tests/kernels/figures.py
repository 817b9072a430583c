# SPDX-License-Identifier: GPL-2.0-only
"""Summarize a record of a survey in sentences."""

from typing import Any

from copyscope.ledger.losses import stopped_readings
from copyscope.record.measured import Measured
from copyscope.record.store import convert_part

Record = dict[str, Any]


def figures_of(record: Record) -> dict[str, str]:
    """Return title -> sentence. Without function hooks there are only the losses."""
    impl = record["workload"]["impl"]
    figures = {}
    if late_copies := copied_elsewhere(record):
        figures[f"{impl}, sender, its deferred copies"] = late_copies
    losses = {name: loss["count"] for name, loss in record["loss"].items() if loss["count"]}
    unknown = sum(loss["count"] is None for loss in record["loss"].values())
    figures[f"{impl}, losses"] = ", ".join(f"{name} {count}" for name, count in losses.items()) or "none"
    figures[f"{impl}, losses"] += f"; {unknown} that this kernel does not count" if unknown else ""
    if interrupted := stopped_readings(convert_part(record, Measured)):
        figures[f"{impl}, copies left out"] = f"{interrupted[0]} of {interrupted[1]} timed"
    return figures


def copied_elsewhere(record: Record) -> str | None:
    """Return how much of the sender's memory other tasks copied, or None if nothing was copied."""
    owners = (record["functions"] or {}).get("owners") or []
    rows = [row for row in owners if row["owner_side"] == "sender"]
    copied = sum(row["bytes"] for row in rows)
    if not copied:
        return None
    elsewhere = sum(row["bytes"] for row in rows if row["current_side"] != "sender")
    return f"{elsewhere:,} of {copied:,} bytes on the time of other tasks: {100 * elsewhere / copied:.1f} %"

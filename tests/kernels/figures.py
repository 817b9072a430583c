"""What one profile of a survey came to, in sentences."""

from typing import Any

from copyscope.ledger.verdict import stopped_looks
from copyscope.record.check import typed

Record = dict[str, Any]


def figures_of(record: Record) -> dict[str, str]:
    """By what they are about; only the losses where no function was hooked."""
    impl = record["workload"]["impl"]
    found = {}
    if elsewhere := copied_elsewhere(record):
        found[f"{impl}, sender, its deferred copies"] = elsewhere
    losses = {name: loss["count"] for name, loss in record["loss"].items() if loss["count"]}
    unknown = sum(loss["count"] is None for loss in record["loss"].values())
    found[f"{impl}, losses"] = ", ".join(f"{name} {count}" for name, count in losses.items()) or "none"
    found[f"{impl}, losses"] += f"; {unknown} that this kernel does not count" if unknown else ""
    if stopped := stopped_looks(typed(record)):
        found[f"{impl}, copies left out"] = f"{stopped[0]} of {stopped[1]} timed"
    return found


def copied_elsewhere(record: Record) -> str | None:
    """How much of the sender's memory was copied on the time of other tasks; None where nothing was."""
    owners = (record["functions"] or {}).get("owners") or []
    rows = [row for row in owners if row["owner_side"] == "sender"]
    copied = sum(row["bytes"] for row in rows)
    if not copied:
        return None
    elsewhere = sum(row["bytes"] for row in rows if row["current_side"] != "sender")
    return f"{elsewhere:,} of {copied:,} bytes on the time of other tasks: {100 * elsewhere / copied:.1f} %"

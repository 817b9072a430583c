"""What the instruments lost, as a share of what they should have seen."""

from __future__ import annotations

from typing import Any

from copyscope.segments import Record


def losses(record: Record) -> dict[str, Any]:
    """The loss section: {name: {count, of, share}}; raw entries are plain counts or already of this form.

    The whole of which something was lost follows from the counter's name: samples_*, calls_*, functions_*;
    recursion_<hook> and missed_<hook> are of that hook's instrument. It stays null for any other counter, and
    for one of which nothing was seen at all. A count that the kernel does not give is null, with the reason.
    """
    return {name: _loss(record, name, raw) for name, raw in record["loss"].items()}


def _loss(record: Record, name: str, raw: Any) -> dict[str, Any]:
    given = raw if isinstance(raw, dict) else {"count": raw, "of": None}
    if given["count"] is None:
        return {"count": None, "of": None, "share": None, "reason": given["reason"]}
    count = int(given["count"])
    of = given.get("of")
    if of is None:
        seen = _seen(record, name)
        of = seen + count if seen else None
    if count == 0:
        return {"count": 0, "of": of, "share": 0.0}
    return {"count": count, "of": of, "share": count / of if of else None}


def _seen(record: Record, name: str) -> int | None:
    hook = name.removeprefix("recursion_").removeprefix("missed_")
    instruments = {h["id"]: h["instrument"] for h in record["hooks"]}
    instrument = instruments.get(hook, name.split("_", maxsplit=1)[0])
    if instrument == "samples":
        return sum(int(row["samples"]) for row in record["samples"])
    if instrument in ("bytes", "calls"):
        return sum(int(row["calls"]) for row in record[instrument])
    if instrument == "functions" and record["functions"] is not None:
        return sum(int(cell["calls"]) for cell in record["functions"]["cells"])
    return None

"""What the instruments lost, as a share of what they should have seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from copyscope.record.program.volume import MAPPED_IN, SPLICED_IN
from copyscope.record.segments import Record


def losses(record: Record) -> dict[str, Any]:
    """The loss section: {name: {count, of, share}}; raw entries are plain counts or already of this form.

    The whole of which something was lost follows from the counter's name: samples_*, calls_*, functions_*;
    recursion_<hook> and missed_<hook> are of that hook's instrument, or that function's own calls. It stays
    null for any other counter, and for one of which nothing was seen at all. A count that the kernel does not
    give is null, with the reason.
    """
    return {name: _loss(record, name, raw) for name, raw in record["loss"].items()}


def dropped_roots(record: Mapping[str, Any]) -> tuple[int, int] | None:
    """How many timed roots were left out, as their parts did not add up, and of how many; None: not known."""
    functions, dropped = record["functions"], record["loss"].get("functions_unbalanced")
    if functions is None or dropped is None:
        return None
    count = int(dropped["count"] if isinstance(dropped, dict) else dropped)
    return count, _sum(functions["roots"], "timed_calls") + count


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
    if name == "watch_socket_map_full" and record.get("target"):
        # Each call of a socket that found no place, its first and the later ones.
        return int(record["target"]["send_calls"] + record["target"]["receive_calls"])
    id_ = name.removeprefix("recursion_").removeprefix("missed_")
    hook = next((hook for hook in record["hooks"] if hook["id"] == id_), None)
    instrument = hook["instrument"] if hook else name.split("_", maxsplit=1)[0]
    if instrument == "samples":
        return _sum(record["samples"], "samples")
    if instrument == "splices":
        rows = record.get("volume", ())
        taken = ((SPLICED_IN, "receive"), (MAPPED_IN, "mapped"))
        return sum(int(row["calls"]) for row in rows if (row["syscall"], row["direction"]) in taken)
    if instrument in ("bytes", "calls"):
        return _sum(record[instrument], "calls")
    if instrument == "functions" and record["functions"] is not None:
        return _seen_by(record, hook) if hook else _seen_in(record["functions"], name)
    return None


def _seen_in(functions: Record, name: str) -> int:
    """The whole that a loss which the programs counted themselves is a part of."""
    cells, roots = functions["cells"], functions["roots"]
    match name:
        case "functions_unbalanced":
            return _sum(roots, "timed_calls")
        case "functions_around_unbalanced":
            return sum(int(cell["timed_calls"]) for cell in cells if cell["category"] == "syscall")
        case "functions_torn_reading" | "functions_counter_unreadable":
            # Each timed call is read at least once.
            return _sum(cells, "timed_calls")
        case "functions_zerocopy_map_full":
            ended = functions["completions"] or []
            return _sum(ended, "copied") + _sum(ended, "zerocopied")
    # What breaks or overflows a stack spoils one root.
    return _sum(roots, "calls")


def _seen_by(record: Record, hook: Record) -> int:
    """Calls of one hooked function.

    The programs count by category: where several functions share one, the smaller of its calls and the roots.
    A mark counts nothing, and neither do the hooks on tracepoints and on the life of a zero-copy send: a call
    of theirs that is lost spoils one root.
    """
    functions, category = record["functions"], hook.get("category")
    roots = _sum(functions["roots"], "calls")
    calls = sum(int(cell["calls"]) for cell in functions["cells"] if cell["category"] == category)
    sharing = [row for row in record["hooks"] if row.get("category") == category and row["how"]]
    if category is None or not calls:
        return roots
    return calls if len(sharing) == 1 else min(calls, roots)


def _sum(rows: list[Record], key: str) -> int:
    return sum(int(row[key]) for row in rows)

"""The exact tier: what the function hooks counted, per KiB, and the identities that it must satisfy. Pure."""

from __future__ import annotations

from typing import Any

from copyscope.identities import Identity, compare, unchecked
from copyscope.segments import Record, cut_short, select, total, zerocopy_total
from copyscope.zerocopy_life import life_identities

ARM = "functions"
# Categories of the hooks -> account or stage of the ledger (bpf/abi.h has the categories).
LEDGER_NAME = {
    "send": "tcp_ip",
    "receive": "tcp_ip",
    "transmit": "tcp_ip",
    "tsq": "tcp_ip",
    "pin_pages": "pin",
}
# Categories that more than one row of bpf/hooks.h can count; one of them is enough.
HOOKS_OF = {"copy_in": ("copy_in", "copy_in_check")}
# Calls that were open when the hooks were attached or detached, and clock reads.
SELF_TOLERANCE = 0.01


def exact_rows(record: Record) -> list[dict[str, Any]]:
    """One row per function category, side and context, over the functions segments; method `exact`.

    self_ns is CPU time (softirq work and hooked callees have rows of their own).
    """
    functions = record["functions"]
    if functions is None:
        return []
    delivered_kib = total(select(record, ARM), "receiver", "bytes") / 1024
    inclusive_ns = {root["side"]: root["inclusive_ns"] for root in functions["roots"]}
    rows = []
    for cell in functions["cells"]:
        of_side = inclusive_ns.get(cell["side"], 0)
        rows.append(
            {
                **cell,
                "ledger_name": LEDGER_NAME.get(cell["category"], cell["category"]),
                "ns_per_kib": cell["self_ns"] / delivered_kib if delivered_kib else None,
                "share": cell["self_ns"] / of_side if of_side else None,
                "method": "exact",
                "reasons": _reasons(delivered_kib, of_side),
            }
        )
    return rows


def _reasons(delivered_kib: float, of_side: int) -> dict[str, str]:
    reasons = {}
    if not delivered_kib:
        reasons["ns_per_kib"] = "nothing was delivered in the functions segments"
    if not of_side:
        reasons["share"] = "no send, receive or softirq of this side ended in the functions segments"
    return reasons


def function_identities(record: Record) -> list[Identity]:
    """Bytes of each copy against the program's totals, and self times against inclusive time."""
    functions = record["functions"]
    if functions is None or cut_short(record):
        return []
    segments = select(record, ARM)
    sent = total(segments, "sender", "bytes")
    referenced = zerocopy_total(segments, "bytes_sent") or 0
    copied = zerocopy_total(segments, "bytes_copied") or 0
    received = total(segments, "receiver", "bytes") - total(segments, "receiver", "truncated_bytes")
    # What is sent a second time (a tail loss probe, for instance) is copied a second time.
    again = retransmitted_bytes(record)
    found = [
        _bytes(record, "functions_copy_in", "copy_in", sent - referenced, "bytes sent without reference"),
        _bytes(record, "functions_pin", "pin", referenced, "bytes sent by reference"),
        _bytes(
            record,
            "functions_deferred",
            "deferred",
            copied,
            "bytes of sends reported copied",
            tolerance=again,
        ),
        _bytes(record, "functions_copy_out", "copy_out", received, "bytes received"),
        *life_identities(record, again),
    ]
    for root in functions["roots"]:
        if root["inclusive_ns"] and root["side"] != "other":
            self_ns = sum(cell["self_ns"] for cell in functions["cells"] if cell["side"] == root["side"])
            what = f"{root['side']}: self times of all functions = inclusive time of the roots"
            tolerance = round(SELF_TOLERANCE * root["inclusive_ns"]) + OPEN_CALL_NS * len(segments)
            name = f"functions_{root['side']}_self"
            found.append(compare(name, what, self_ns, root["inclusive_ns"], "ns", tolerance=tolerance))
    return found


# A receive that is open when the hooks are detached has been charged, and has not ended.
OPEN_CALL_NS = 200_000


def retransmitted_bytes(record: Record) -> int:
    """Bytes that the connections of the whole run sent again (TCP_INFO)."""
    threads = record["traffic"]["sender"]["threads"]
    return sum(int((thread.get("tcp_info") or {}).get("bytes_retrans") or 0) for thread in threads)


def _bytes(
    record: Record, name: str, category: str, expected: int, what: str, *, tolerance: int = 0
) -> Identity:
    """Bytes of one category, all sides and contexts, against what the program says."""
    text = f"{category} by function hooks = {what}"
    ids = HOOKS_OF.get(category, (category,))
    hooks = [row for row in record["hooks"] if row["instrument"] == ARM and row["id"] in ids]
    if not any(hook["state"] == "attached" for hook in hooks):
        reason = "; ".join(f"{hook['symbol']}: {hook['reason']}" for hook in hooks) or "no such hook"
        return unchecked(name, text, "bytes", f"{category}: {reason}")
    cells = record["functions"]["cells"]
    counted = sum(cell["bytes"] for cell in cells if cell["category"] == category)
    return compare(name, text, counted, expected, "bytes", tolerance=tolerance)

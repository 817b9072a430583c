"""What a watched program's traffic looks like: sizes, calls, options, packets, peers. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Any

from copyscope.ledger.program.send_shape import buffers, rounds
from copyscope.record.program.volume import BY_REFERENCE, MAPPED_IN, SPLICED_MEMORY, added, volume
from copyscope.record.segments import Record


def portrait(record: Record) -> dict[str, Any]:
    """The portrait section, over all segments; a direction without a call is null."""
    packets = record["packets"]
    seen = packets is not None and packets["packets"]
    return {
        "send": side_of_it(record, "send"),
        "receive": side_of_it(record, "receive"),
        "packets": {
            "packets": packets["packets"],
            "mean_bytes": packets["bytes"] / packets["packets"],
            "mean_segments": packets["segments"] / packets["packets"],
            "sizes": packets["sizes"],
        }
        if seen
        else None,
        "buffers": buffers(record)[0],
        "rounds": rounds(record)[0],
        "mapped": mapped(record),
        "connections": len(record["connections"]),
        "local_share": local_share(record),
        "reasons": reasons(record, bool(seen)),
    }


def side_of_it(record: Record, direction: str) -> dict[str, Any] | None:
    """Sizes and calls of one direction."""
    rows = volume(record, direction)
    calls, moved = added(rows, "calls"), added(rows, "bytes")
    if not calls:
        return None
    sizes: Counter[int] = Counter()
    by_call: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        for low, count in row["sizes"]:
            sizes[int(low)] += int(count)
        by_call.setdefault((row["protocol"], row["syscall"]), []).append(row)
    memory = added([row for row in rows if row["syscall"] == SPLICED_MEMORY], "bytes")
    pages = added([row for row in rows if row["syscall"] in BY_REFERENCE], "bytes") - memory
    return {
        "calls": calls,
        "bytes": moved,
        "mean_bytes": moved / calls,
        "median_low_bytes": median_slot(sizes),
        "sizes": [[low, count] for low, count in sorted(sizes.items())],
        "by_call": [
            {
                "protocol": protocol,
                "syscall": syscall,
                "calls": added(of_call, "calls"),
                "bytes": added(of_call, "bytes"),
            }
            for (protocol, syscall), of_call in sorted(
                by_call.items(), key=lambda item: -added(item[1], "bytes")
            )
        ],
        "zerocopy_share": added(rows, "zerocopy_bytes") / moved if moved else 0.0,
        "page_share": pages / moved if moved else 0.0,
        "memory_share": memory / moved if moved else 0.0,
        "nodelay_share": added(rows, "nodelay_calls") / calls,
        "cork_share": added(rows, "cork_calls") / calls,
        "io_uring_share": added([row for row in rows if row["syscall"] == "io_uring"], "bytes") / moved
        if moved
        else 0.0,
    }


def mapped(record: Record) -> dict[str, Any] | None:
    """What TCP_ZEROCOPY_RECEIVE took, where that was counted; None when it was never called."""
    rows, beside = (
        volume(record, "mapped"),
        [r for r in volume(record, "receive") if r["syscall"] == MAPPED_IN],
    )
    moved, copied = added(rows, "bytes"), added(beside, "bytes")
    if not rows:
        return None
    return {
        "calls": added(rows, "calls"),
        "bytes": moved,
        "pages": moved // int(record["target"]["page_bytes"]),
        "copied_bytes": copied,
        "mapped_share": moved / (moved + copied) if moved + copied else 0.0,
    }


def median_slot(sizes: Counter[int]) -> int:
    """The lower end of the power of two that holds the median."""
    half, seen = sum(sizes.values()) / 2, 0
    for low, count in sorted(sizes.items()):
        seen += count
        if seen >= half:
            return low
    return 0


def local_share(record: Record) -> float | None:
    """The part of the peers that are on this machine; None when no path could be looked at."""
    known = [
        peer["local"] for peer in (record["topology"] or {}).get("peers", []) if peer["local"] is not None
    ]
    return sum(known) / len(known) if known else None


def reasons(record: Record, packets_seen: bool) -> dict[str, str]:
    """Why a part of the portrait is null."""
    found = {}
    for direction in ("send", "receive"):
        if not volume(record, direction):
            found[direction] = "no such call on a TCP, MPTCP, UDP or UNIX socket"
    if not packets_seen:
        found["packets"] = (
            "no packet of a connected socket left in the program's own time"
            if any(s["arm"] == "calls" for s in record["run"]["segments"])
            else "packets are counted in calls segments, and there was none"
        )
    found |= {
        part: reason
        for part, (made, reason) in (("buffers", buffers(record)), ("rounds", rounds(record)))
        if made is None
    }
    if mapped(record) is None:
        found["mapped"] = "TCP_ZEROCOPY_RECEIVE was not called where that is counted"
    if local_share(record) is None:
        found["local_share"] = "no connection was there to be looked at when the path was read"
    return found

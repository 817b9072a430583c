"""Would zero-copy or sendfile help this program on this path? One honest paragraph. Pure.

What could be saved at most is the program's own copy_in. What it would cost instead is not in this record;
the crossover that was measured on this host (tools/crossover.py) says from which size on it pays.
"""

from __future__ import annotations

from typing import Any

from copyscope.segments import Record
from copyscope.watch_flows import added, volume
from copyscope.zerocopy_cause import device_without_gather, is_tap

Crossover = dict[str, Any]

NO_CROSSOVER = (
    "Cannot tell whether zero-copy would pay, because no crossover was measured here: run tools/crossover.py."
)
MOSTLY = 0.5
PAGE_SHIFT = 12


def advise(record: Record, crossovers: list[Crossover] | None) -> dict[str, Any]:
    """The advice section: the paragraph, and what it rests on."""
    portrait = record["portrait"]["send"]
    if portrait is None:
        return _advice("It sends nothing over TCP or UDP: there is no send to make cheaper.", None, [], None)
    most = most_to_save(record)
    typical_bytes = byte_median(portrait["sizes"])
    found = stoppers(record, typical_bytes)
    row = matching(crossovers, record) if crossovers else None
    sentences = [
        _what_it_does(portrait, typical_bytes),
        _most(most),
        _crossing(row, typical_bytes) if row is not None else NO_CROSSOVER,
    ]
    if found:
        sentences.append(f"What would stop it: {'; '.join(found)}.")
    return _advice(" ".join(sentences), most, found, row)


def _advice(
    text: str, most: dict[str, float] | None, found: list[str], row: Crossover | None
) -> dict[str, Any]:
    return {"text": text, "most_to_save": most, "stoppers": found, "crossover": row}


def most_to_save(record: Record) -> dict[str, float] | None:
    """The share of copy_in in the program's CPU time, with its interval; None when it was not sampled."""
    rows = [r for r in record["ledger"] if r["account"] == "copy_in" and r["side"] == "target"]
    cpu_ns = record["sides"]["target"]["cpu_ns"]
    if not cpu_ns or not rows or any(row["share"] is None for row in rows):
        return None
    home = max(rows, key=lambda row: row["cpu_ns"])
    low, high = (home["ci"]["low_ns"] / cpu_ns, home["ci"]["high_ns"] / cpu_ns) if home["ci"] else (0.0, 1.0)
    return {"share": sum(row["share"] for row in rows), "low": low, "high": high}


def byte_median(sizes: list[list[int]]) -> int:
    """The size of call that half of the bytes go through: the lower end of its power of two."""
    weights = [(low, low * count) for low, count in sizes]
    half, seen = sum(weight for _, weight in weights) / 2, 0
    for low, weight in weights:
        seen += weight
        if seen >= half:
            return low
    return 0


def stoppers(record: Record, typical_bytes: int) -> list[str]:
    """What on this path, or in this program, would take the gain away again."""
    found = []
    topology = record["topology"]
    local = record["portrait"]["local_share"]
    if local is not None and local > MOSTLY:
        found.append(
            f"its peers are on this machine ({topology['kind']}): a zero-copy send is copied there after all "
            "(sendfile is not)"
        )
    for tap in (s for s in topology["packet_sockets"] if is_tap(s, record)):
        owner = f"{tap['comm']}[{tap['pid']}]" if tap["pid"] is not None else "somebody"
        found.append(f"{owner} holds an ETH_P_ALL socket on {tap['device']}: every packet is copied for it")
    device = device_without_gather(record)
    if device is not None:
        found.append(f"{device} has no scatter-gather: the kernel copies at the call")
    if topology["xdp"]:
        found.append(f"XDP ({topology['xdp']}) on its device")
    memlock_bytes = record["machine"]["limits"]["memlock_bytes"]
    pages = (typical_bytes >> PAGE_SHIFT) + 2
    if memlock_bytes is not None and memlock_bytes < 16 * (pages << PAGE_SHIFT):
        found.append(
            f"its memlock limit of {memlock_bytes >> 10} KiB holds "
            f"{memlock_bytes // (pages << PAGE_SHIFT)} sends of {pages} pages in flight"
        )
    udp = added([row for row in volume(record, "send") if row["protocol"] == "udp"], "bytes")
    if udp > MOSTLY * record["tx_bytes"]:
        found.append("most of it is UDP, of which copyscope has no crossover")
    return found


def matching(crossovers: list[Crossover], record: Record) -> Crossover | None:
    """The crossover of zero-copy against a copying send, of the nearest number of threads; CPU time first."""
    rows = [row for row in crossovers if "zero_copy" in str(row.get("pair"))]
    threads = max((s["target"]["threads"] for s in record["run"]["segments"]), default=1)
    rows.sort(
        key=lambda row: (
            "cpu" not in str(row.get("quantity")),
            "one_copy" not in str(row.get("pair")),
            abs(int(row.get("threads") or 1) - threads),
        )
    )
    return rows[0] if rows else None


def _what_it_does(portrait: dict[str, Any], typical_bytes: int) -> str:
    by_reference = portrait["zerocopy_share"] + portrait["page_share"]
    text = f"Half of its bytes go out in calls of {kib(typical_bytes)} or more"
    if by_reference >= 1 - MOSTLY:
        return f"{text}; {by_reference * 100:.0f} % of them go by reference already."
    return f"{text}, {(1 - by_reference) * 100:.0f} % of them by a copy into the kernel."


def _most(most: dict[str, float] | None) -> str:
    if most is None:
        return "What that copy costs was not sampled."
    return (
        f"That copy takes {most['share'] * 100:.0f} % of its CPU time ({most['low'] * 100:.0f} to "
        f"{most['high'] * 100:.0f} %): no more than this can be saved, and taking and giving back the pages "
        "costs a part of it."
    )


def _crossing(row: Crossover, typical_bytes: int) -> str:
    where = f"{row['pair']}, {row['threads']} threads, {row['quantity']}, measured on this host"
    if row["size_bytes"] is None:
        return f"The measured crossover says: {row['verdict']} ({where})."
    low = row["low"] if row["low"] is not None else row["size_bytes"]
    high = row["high"] if row["high"] is not None else row["size_bytes"]
    interval = f"{kib(row['size_bytes'])} ({kib(low)} to {kib(high)}; {where})"
    if typical_bytes >= high:
        return f"Zero-copy pays from {interval} on, and its calls are larger: it would help on that path."
    if 2 * typical_bytes <= low:
        return (
            f"Zero-copy pays from {interval} on, and its calls are smaller: it would cost more than it saves."
        )
    return f"Zero-copy pays from {interval} on, which is about where its calls are: no difference to expect."


def kib(size_bytes: float) -> str:
    return f"{size_bytes / 1024:,.0f} KiB" if size_bytes >= 1024 else f"{size_bytes:.0f} B"

"""Would zero-copy or sendfile help this program on this path? One honest paragraph. Pure.

What could be saved at most is the program's own copy_in. What it would cost instead is not in this record;
a crossover that was measured on this host and on such a path (tools/crossover.py) says from which size on it
pays.
"""

from __future__ import annotations

import math
from typing import Any

from copyscope.segments import Record
from copyscope.watch_flows import added, volume
from copyscope.watch_verdict import file_read_share
from copyscope.zerocopy_cause import device_without_gather, is_tap

Crossover = dict[str, Any]

NO_CROSSOVER = (
    "Cannot tell whether zero-copy would pay, because no crossover was measured on this host: run "
    "sudo tools/crossover.py (two minutes) and ask again."
)
MOSTLY = 0.5
WORTH_SAYING = 0.005
PAGE_SHIFT = 12
# "MSG_ZEROCOPY is generally only effective at writes over around 10 KB" (networking/msg_zerocopy.rst)
SMALL_BYTES = 10_240
# References to memory that one packet holds: MAX_SKB_FRAGS, include/linux/skbuff.h
PACKET_REFERENCES = 17
# Paths that never leave the machine, by the driver of the device: the name that crossover.json gives them.
LOCAL_PATHS = {"loopback": "loopback", "veth": "veth"}
QUANTITIES = {
    "sender_cpu_ns_per_kib": "the sender's CPU time",
    "system_cpu_ns_per_kib": "CPU time of both sides",
    "receiver_cpu_ns_per_kib": "the receiver's CPU time",
    "goodput_gbps": "goodput",
}


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
        *_files(record),
        _crossing(row, typical_bytes, record) if row is not None else NO_CROSSOVER,
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
    return _on_the_path(record) + _in_the_program(record, typical_bytes)


def _on_the_path(record: Record) -> list[str]:
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
    return found


def _in_the_program(record: Record, typical_bytes: int) -> list[str]:
    found = []
    if typical_bytes < SMALL_BYTES:
        found.append(
            f"its writes are small: half of its bytes go out in calls of {kib(2 * typical_bytes)} or less, "
            "and the kernel's documentation has zero-copy pay above 10 KB"
        )
    buffers = record["portrait"]["buffers"]
    if buffers is not None and buffers["repeated_share"] > MOSTLY:
        found.append(
            f"{buffers['repeated_share'] * 100:.0f} % of its messages begin at the address of the message "
            "before: it would have to wait for each completion before it fills that buffer again, or take "
            "turns with several"
        )
    if buffers is not None and buffers["mean_per_message"] >= 2:
        one_bytes = record["portrait"]["send"]["mean_bytes"] / buffers["mean_per_message"]
        if one_bytes < 1 << PAGE_SHIFT:
            found.append(
                f"its messages are {buffers['mean_per_message']:.0f} buffers of {kib(one_bytes)}: zero-copy "
                f"holds each by a reference, and a packet has {PACKET_REFERENCES}, so packets would be small"
            )
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
    """The crossover of zero-copy against a copying send that is nearest to this program.

    The path counts first, then the sender's CPU time, then the pair; of equal ones the newest file (they come
    in that order), and of one file the nearest number of threads.
    """
    rows = [row for row in crossovers if "zero_copy" in row["pair"]]
    threads = max((s["target"]["threads"] for s in record["run"]["segments"]), default=1)
    files = list(dict.fromkeys(row["file"] for row in rows))
    quantities = list(QUANTITIES)
    return min(
        rows,
        key=lambda row: (
            distance(row, record),
            quantities.index(row["quantity"]) if row["quantity"] in quantities else len(quantities),
            "one_copy" not in row["pair"],
            files.index(row["file"]),
            abs(int(row["threads"]) - threads),
        ),
        default=None,
    )


def distance(row: Crossover, record: Record) -> int:
    """How far the path that was measured is from the program's: 0 the same, 1 alike, 2 of another kind."""
    topology = record["topology"]
    drivers = {LOCAL_PATHS.get(str(device["driver"])) for device in topology["devices"]}
    if topology["local_delivery"] and row["path"] in drivers:
        return 0
    return 1 if bool(topology["local_delivery"]) == _is_local(row) else 2


def _is_local(row: Crossover) -> bool:
    return any(str(row["path"]).startswith(name) for name in LOCAL_PATHS.values())


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


def _files(record: Record) -> list[str]:
    """Where it reads files to send them, sendfile saves a copy more, and needs no completion."""
    share = file_read_share(record)
    if share is None or share < WORTH_SAYING:
        return []
    return [
        f"Reading files into its memory takes {share * 100:.0f} % more: if it sends what it reads as it is, "
        "sendfile spares both copies."
    ]


def _crossing(row: Crossover, typical_bytes: int, record: Record) -> str:
    quantity = QUANTITIES.get(row["quantity"], row["quantity"])
    threads = "1 thread" if row["threads"] == 1 else f"{row['threads']} threads"
    against = " or ".join(name for name in row["pair"] if name != "zero_copy")
    where = (
        f"against {against}, {quantity}, {threads}, measured on this host over {row['path']}: {row['file']}"
    )
    if distance(row, record) == 2:
        return (
            "Cannot tell whether zero-copy would pay, because it was measured on this host over "
            f"{row['path']} only ({row['file']}), and this program sends over {record['topology']['kind']}: "
            "run tools/crossover.py with an experiment over that path."
        )
    if row["verdict"] == "crosses":
        return _by_size(row, typical_bytes, where)
    if row["verdict"] == "undetermined":
        reason = str(row["evidence"]).split("; largest residual")[0]
        return f"Cannot tell whether zero-copy would pay: {reason} ({where})."
    if row["verdict"] == "always":
        return f"Zero-copy paid at every size ({where}): it would help on that path."
    return f"Zero-copy never paid at any size ({where}): it would not help."


def _by_size(row: Crossover, typical_bytes: int, where: str) -> str:
    """Where its calls are: above the interval of the crossover, below it, or in it."""
    low = row["low_bytes"] if row["low_bytes"] is not None else 0
    high = row["high_bytes"] if row["high_bytes"] is not None else math.inf
    interval = f"{kib(row['size_bytes'])} ({kib(low)} to {kib(high)}; {where})"
    if row["above"] != "zero_copy":
        return f"Zero-copy pays below {interval} and not above it."
    if typical_bytes >= high:
        return f"Zero-copy pays from {interval} on, and its calls are larger: it would help on that path."
    if 2 * typical_bytes <= low:
        return (
            f"Zero-copy pays from {interval} on, and its calls are smaller: it would cost more than it saves."
        )
    return f"Zero-copy pays from {interval} on, which is about where its calls are: no difference to expect."


def kib(size_bytes: float) -> str:
    if math.isinf(size_bytes):
        return "beyond what was measured"
    return f"{size_bytes / 1024:,.0f} KiB" if size_bytes >= 1024 else f"{size_bytes:.0f} B"

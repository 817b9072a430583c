"""Who was the limit: the sender, the receiver or the path between them, with the evidence.

A side whose threads hardly ever left the CPU cannot go faster. Otherwise the kernel's own account of why the
sender waited decides (TCP_INFO: busy time, and in it the time limited by the peer's window or by the send
buffer).
"""

from __future__ import annotations

from typing import Any

from copyscope.ledger.cpu_time import cpu_time
from copyscope.record.segments import PROCESSES, Record, select, wall_ns

SATURATED = 0.90
MOSTLY = 0.50


def find_limit(record: Record) -> dict[str, str]:
    """The limit section: who (sender, receiver, path, unknown) and the evidence in one sentence."""
    busy = {side: on_cpu_share(record, side) for side in PROCESSES}
    shown = ", ".join(f"{side} {share * 100:.0f} %" for side, share in busy.items() if share is not None)
    none = "no segment with the ledger's instruments"
    evidence = f"on CPU of its threads' time: {shown}" if shown else none
    saturated = {side: share for side, share in busy.items() if share is not None and share >= SATURATED}
    if saturated:
        return _limit(max(saturated, key=lambda side: saturated[side]), evidence)
    crowded = machine_share(record)
    if crowded is not None and crowded >= SATURATED:
        who = max(PROCESSES, key=lambda side: cpu_time(record, side).ns)
        return _limit(
            who,
            f"{evidence}; all {record['machine']['cpus_online']} CPUs were {crowded * 100:.0f} % busy "
            f"with both sides, most of it the {who}",
        )
    return _by_tcp(record, evidence)


def on_cpu_share(record: Record, side: str) -> float | None:
    """CPU time of a side's process over the wall time of its threads in the ledger segments (0..1)."""
    segments = select(record, "ledger")
    threads_ns = wall_ns(segments) * threads_of(record, side)
    return cpu_time(record, side).ns / threads_ns if threads_ns > 0 else None


def threads_of(record: Record, side: str) -> int:
    """How many threads of a side have the work: one for each connection, or one for all of them."""
    workload = record["workload"]
    one = workload.get("sender") == "loop" if side == "sender" else workload["receiver"] == "poll"
    return 1 if one else int(workload["threads"])


def machine_share(record: Record) -> float | None:
    """CPU time of both processes over that of all CPUs; None across machines or without segments."""
    segments = select(record, "ledger")
    all_ns = wall_ns(segments) * int(record["machine"]["cpus_online"])
    if all_ns <= 0:
        return None
    return sum(cpu_time(record, side).ns for side in PROCESSES) / all_ns


def tcp_seconds(record: Record) -> dict[str, float] | None:
    """Busy, window-limited and buffer-limited time of the connections in s; None when not reported."""
    names = {
        "busy": ("busy_time_us", "busy_us"),
        "window": ("rwnd_limited_us",),
        "buffer": ("sndbuf_limited_us",),
    }
    sums = dict.fromkeys(names, 0.0)
    threads = record["traffic"]["sender"]["threads"]
    for thread in threads:
        info: dict[str, Any] = thread.get("tcp_info") or {}
        for what, keys in names.items():
            value = next((info[key] for key in keys if info.get(key) is not None), None)
            if value is None:
                return None
            sums[what] += value / 1e6
    return sums if threads else None


def _by_tcp(record: Record, evidence: str) -> dict[str, str]:
    tcp = tcp_seconds(record)
    if tcp is None or tcp["busy"] <= 0:
        return _limit("unknown", f"{evidence}; the sender's connections reported no busy time")
    shares = {what: tcp[what] / tcp["busy"] for what in ("window", "buffer")}
    evidence += (
        f"; of the connections' busy time {shares['window'] * 100:.0f} % waited for the receiver's window "
        f"and {shares['buffer'] * 100:.0f} % for the send buffer"
    )
    if shares["window"] >= MOSTLY:
        return _limit("receiver", evidence)
    if shares["buffer"] >= MOSTLY:
        return _limit("path", evidence)
    return _limit("unknown", f"{evidence}: no one cause holds for most of the time")


def _limit(who: str, evidence: str) -> dict[str, str]:
    return {"who": who, "evidence": evidence}

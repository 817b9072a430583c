"""Who was the limit: a side's CPU, the other end or the path between them, with the evidence.

A side whose threads hardly ever left the CPU cannot go faster. Otherwise the kernel's own account of why the
sender waited decides (TCP_INFO: busy time, and in it the time limited by the peer's window or by the send
buffer).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from copyscope.ledger.cpu_time import cpu_time
from copyscope.record.derived import Limit
from copyscope.record.program.raw import RawProgramRun
from copyscope.record.program.volume import added
from copyscope.record.raw import RawRun, Workload
from copyscope.record.segments import PROCESSES, machines, select, wall_ns

SATURATED = 0.90
MOSTLY = 0.50


def find_limit(raw: RawRun) -> Limit:
    """Of our own traffic: sender, receiver, path or unknown, and the evidence in one sentence."""
    busy = {side: on_cpu_share(raw, side) for side in PROCESSES}
    shown = ", ".join(f"{side} {share * 100:.0f} %" for side, share in busy.items() if share is not None)
    evidence = f"on CPU of its threads' time: {shown}"
    if not shown:
        evidence = "no segment with the ledger's instruments"
    saturated = {side: share for side, share in busy.items() if share is not None and share >= SATURATED}
    if saturated:
        return Limit(max(saturated, key=lambda side: saturated[side]), evidence)
    spent = {side: cpu_time(raw, side).ns for side in PROCESSES}
    all_ns = wall_ns(select(raw.run.segments, "ledger")) * raw.machine.cpus_online
    crowded = sum(spent.values()) / all_ns if all_ns > 0 and len(machines(raw)) == 1 else 0.0
    if crowded >= SATURATED:
        who = max(PROCESSES, key=lambda side: spent[side])
        return Limit(
            who,
            f"{evidence}; all {raw.machine.cpus_online} CPUs were {crowded * 100:.0f} % busy "
            f"with both sides, most of it the {who}",
        )
    tcp = tcp_seconds(raw.traffic.sender.threads)
    if tcp is None or tcp["busy"] <= 0:
        return Limit("unknown", f"{evidence}; the sender's connections reported no busy time")
    window, buffer = tcp["window"] / tcp["busy"], tcp["buffer"] / tcp["busy"]
    evidence += (
        f"; of the connections' busy time {window * 100:.0f} % waited for the receiver's window "
        f"and {buffer * 100:.0f} % for the send buffer"
    )
    waited = waited_for(window, buffer, "receiver")
    none = ": no one cause holds for most of the time" if waited == "unknown" else ""
    return Limit(waited, evidence + none)


def find_program_limit(raw: RawProgramRun, cpus_used: float | None) -> Limit:
    """Of a watched program: its CPU (target), its peer, the path or unknown."""
    evidence = "CPU time not known" if cpus_used is None else f"on CPU {cpus_used * 100:.0f} % of the time"
    threads = max((s.target.threads for s in raw.run.segments), default=1)
    if cpus_used is not None and threads == 1 and cpus_used >= SATURATED:
        return Limit("target", f"{evidence}, with one thread")
    machine_cpus = raw.machine.cpus_online
    if cpus_used is not None and cpus_used >= SATURATED * machine_cpus:
        return Limit("target", f"{evidence}, of {machine_cpus} CPUs")
    busy_ms = added(raw.connections, "busy_ms")
    if not busy_ms:
        return Limit("unknown", f"{evidence}; no connection that lasted was busy sending")
    window, buffer = (added(raw.connections, f"{key}_limited_ms") / busy_ms for key in ("rwnd", "sndbuf"))
    evidence += (
        f"; of its connections' busy time {window * 100:.0f} % waited for the peer's window and "
        f"{buffer * 100:.0f} % for the send buffer"
    )
    return Limit(waited_for(window, buffer, "peer"), evidence)


def waited_for(window: float, buffer: float, other_end: str) -> str:
    """Whom connections waited for most of their busy time."""
    return other_end if window >= MOSTLY else "path" if buffer >= MOSTLY else "unknown"


def on_cpu_share(raw: RawRun, side: str) -> float | None:
    """CPU time of a side's process over the wall time of its threads in the ledger segments (0..1)."""
    threads_ns = wall_ns(select(raw.run.segments, "ledger")) * threads_of(raw.workload, side)
    return cpu_time(raw, side).ns / threads_ns if threads_ns > 0 else None


def threads_of(workload: Workload, side: str) -> int:
    """How many threads of a side have the work: one for each connection, or one for all of them."""
    one = workload.sender == "loop" if side == "sender" else workload.receiver == "poll"
    return 1 if one else workload.threads


def tcp_seconds(threads: Sequence[dict[str, Any]]) -> dict[str, float] | None:
    """Busy, window-limited and buffer-limited time of the connections in s; None when not reported."""
    names = {
        "busy": ("busy_time_us", "busy_us"),
        "window": ("rwnd_limited_us",),
        "buffer": ("sndbuf_limited_us",),
    }
    sums = dict.fromkeys(names, 0.0)
    for thread in threads:
        info = thread.get("tcp_info") or {}
        for what, keys in names.items():
            value = next((info[key] for key in keys if info.get(key) is not None), None)
            if value is None:
                return None
            sums[what] += value / 1e6
    return sums if threads else None

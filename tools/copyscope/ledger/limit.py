"""Who was the limit: a side's CPU, the other end or the path between them, with the evidence.

A side whose threads hardly ever left the CPU cannot go faster. Otherwise the kernel's own account of why the
sender waited decides (TCP_INFO: busy time, and in it the time limited by the peer's window or by the send
buffer).
"""

from collections.abc import Sequence
from itertools import chain

from copyscope.ledger.attribution import cpu_time
from copyscope.record.derived import Limit, Sides
from copyscope.record.measured import Measured, Workload
from copyscope.record.segments import PROCESSES, machines, select, wall_ns
from copyscope.record.watched import added

SATURATED = 0.90
MOSTLY = 0.50
# Of tcp_info: how long a connection had something to send, and in it waited for the window, for the buffer.
TCP_TIMES = ("busy_time_us", "rwnd_limited_us", "sndbuf_limited_us")


def find_limit(raw: Measured, sides: Sides) -> Limit:
    """Sender, receiver, path, target, peer or unknown, and the evidence in one sentence."""
    return _of_own(raw) if sides.target is None else _of_target(raw, sides.target.cpus_used)


def _of_own(raw: Measured) -> Limit:
    busy = {side: on_cpu_share(raw, side) for side in PROCESSES}
    shown = ", ".join(f"{side} {share * 100:.0f} %" for side, share in busy.items() if share is not None)
    on_cpu = f"threads on CPU: {shown}" if shown else "no segment with the ledger's instruments"
    saturated = {side: share for side, share in busy.items() if share is not None and share >= SATURATED}
    if saturated:
        return _limit(max(saturated, key=lambda side: saturated[side]), on_cpu)
    spent = {side: cpu_time(raw, side).ns for side in PROCESSES}
    all_ns = wall_ns(select(raw.run.segments, "ledger")) * raw.machine.cpus_online
    crowded = sum(spent.values()) / all_ns if all_ns > 0 and len(machines(raw)) == 1 else 0.0
    if crowded >= SATURATED:
        who = max(PROCESSES, key=lambda side: spent[side])
        share = f"all {raw.machine.cpus_online} CPUs were {crowded * 100:.0f} % busy with both sides"
        return _limit(who, on_cpu, f"{share}, most of it the {who}")
    infos = [thread.tcp_info or {} for thread in raw.reports.sender.threads]
    spent_us = [[info.get(key) for info in infos] for key in TCP_TIMES]
    sums_us = [sum(us for us in of_all if us is not None) for of_all in spent_us]
    if None in chain(*spent_us) or not sums_us[0]:
        return _limit("unknown", on_cpu, "the sender's connections reported no busy time")
    who, waited = waited_for(sums_us, "receiver")
    none = ": no single cause for most of the time" if who == "unknown" else ""
    return _limit(who, on_cpu, f"{waited}{none}")


def _of_target(raw: Measured, cpus_used: float | None) -> Limit:
    on_cpu = "CPU time not known" if cpus_used is None else f"on CPU {cpus_used * 100:.0f} % of the time"
    threads = max((s.target.threads for s in raw.run.segments), default=1)
    if cpus_used is not None and threads == 1 and cpus_used >= SATURATED:
        return _limit("target", f"{on_cpu}, with one thread")
    machine_cpus = raw.machine.cpus_online
    if cpus_used is not None and cpus_used >= SATURATED * machine_cpus:
        return _limit("target", f"{on_cpu}, of {machine_cpus} CPUs")
    spent_ms = [added(raw.connections, f"{key}_ms") for key in ("busy", "rwnd_limited", "sndbuf_limited")]
    if not spent_ms[0]:
        return _limit("unknown", on_cpu, "no connection that lasted was busy sending")
    who, waited = waited_for(spent_ms, "peer")
    return _limit(who, on_cpu, waited)


def _limit(who: str, *evidence: str) -> Limit:
    """What is said last decides."""
    return Limit(who, "; ".join(evidence), evidence[-1])


def waited_for(spent: Sequence[int], other_end: str) -> tuple[str, str]:
    """Whom connections waited for most of their busy time, of (busy, limited by window, by buffer)."""
    busy, window, buffer = spent
    evidence = (
        f"connections waited {window / busy * 100:.0f} % of their busy time for the {other_end}'s window, "
        f"{buffer / busy * 100:.0f} % for the send buffer"
    )
    by_buffer = "path" if buffer >= MOSTLY * busy else "unknown"
    return other_end if window >= MOSTLY * busy else by_buffer, evidence


def on_cpu_share(raw: Measured, side: str) -> float | None:
    """CPU time of a side's process over the wall time of its threads in the ledger segments (0..1)."""
    threads_ns = wall_ns(select(raw.run.segments, "ledger")) * threads_of(raw.asked, side)
    return cpu_time(raw, side).ns / threads_ns if threads_ns > 0 else None


def threads_of(workload: Workload, side: str) -> int:
    """How many threads of a side have the work: one for each connection, or one for all of them."""
    one = workload.sender == "loop" if side == "sender" else workload.receiver == "poll"
    return 1 if one else workload.threads

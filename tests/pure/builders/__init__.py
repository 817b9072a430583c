# SPDX-License-Identifier: GPL-2.0-only
"""Complete, valid raw records that need no kernel and are the same on every machine.

    raw_record("zero_copy")                        zero-copy over veth: the kernel copies every send late
    raw_record("zero_copy", kind="veth-xdp")       the completion flag says zero-copy, the driver copies
    raw_record("one_copy", pmu=True)               with hardware counters and event samples
    raw_record("one_copy", fixed_messages=23)      a fixed message count: one segment, no control
    raw_record("one_copy", phases=("unprobed", "calls"))          only some of the instruments
    raw_record("one_copy", phases=("unprobed", "ledger", "calls"))    bytes counted in the ledger's segments
    raw_record("one_copy", died=("sender", "collector"))        programs that died before the end
    raw_record("one_copy", stopped_after=2)                     Ctrl-C in the third segment

The invented numbers resemble those of a virtual machine with two CPUs, and balance to the byte.
`derive(raw_record(...))` of documents.py is the complete record.
"""

from pathlib import Path
from typing import Any

from copyscope.ledger.attribution import side_times
from copyscope.ledger.checks import check_balances, own_traffic
from copyscope.ledger.checks.time import time_checks
from copyscope.record import store
from copyscope.record.assemble import machine_load, side_report
from copyscope.record.derived import Derived, Identity
from copyscope.record.measured import Measured
from copyscope.record.moved import MeasuredSegment
from msgspec import convert, to_builtins

from .kernel import counters, hooks, kernel_bytes, kernel_calls, summed
from .parts import loads as loads
from .parts import machine, sampled, sampler, tcp_info, topology, zero_copy_totals

Record = dict[str, Any]

SEGMENT_NS = 300_000_000
# CPU time that one sample represents: a timer of 10 kHz that is active for 40 % of the time.
PERIOD_NS = 250_000
GATE = 16
BLOCKS = 3
PHASES = ("unprobed", "ledger", "calls", "bytes")
# Phase -> goodput relative to the unprobed phase, per block: the cost of the instruments.
PHASE_RATIO = {
    **{"unprobed": (1.0, 1.0, 1.0), "ledger": (0.97, 0.96, 0.98), "calls": (0.90, 0.91, 0.89)},
    "bytes": (0.98, 0.97, 0.96),
    "functions": (0.79, 0.82, 0.80),
}

# Strategy -> per unprobed segment: messages, CPU ns of sender, of receiver; per message: user copies, calls.
RATES: dict[str, tuple[int, int, int, int, int]] = {
    "one_copy": (10_000, 285_000_000, 180_000_000, 0, 1),
    "two_copy": (8_500, 290_000_000, 160_000_000, 1, 1),
    "zero_copy": (8_000, 292_000_000, 150_000_000, 0, 1),
    "per_field": (7_000, 295_000_000, 210_000_000, 0, 8),
    "sendfile": (9_500, 280_000_000, 180_000_000, 0, 1),
    "uring_zc": (8_100, 290_000_000, 150_000_000, 0, 1),
    "null": (5_000_000, 298_000_000, 1_000_000, 0, 0),
}
GATHER_NS_PER_MESSAGE = 6_100
WITH_COMPLETIONS = ("zero_copy", "uring_zc")
BY_REFERENCE = (*WITH_COMPLETIONS, "sendfile")
SYSCALL = {
    "one_copy": "sendmsg",
    "zero_copy": "sendmsg",
    "sendfile": "sendfile",
    "uring_zc": "io_uring",
}


def raw_record(
    impl: str = "one_copy",
    *,
    kind: str = "veth",
    size_bytes: int = 65_536,
    threads: int = 1,
    receiver: str = "read",
    blocks: int = BLOCKS,
    fixed_messages: int | None = None,
    pmu: bool = False,
    packet_sockets: list[dict[str, Any]] | None = None,
    scatter_gather: bool = True,
    phases: tuple[str, ...] = PHASES,
    died: tuple[str, ...] = (),
    stopped_after: int | None = None,
) -> Record:
    """Return the raw sections of a record, without ledger and verdict.

    impl: a strategy of RATES
    kind: veth, veth-xdp, loopback or nics
    blocks: number of blocks, each with all phases
    fixed_messages: number of messages of a run with a single segment `ledger+calls`
    died: programs that gave no report (sender, receiver, collector)
    stopped_after: number of complete segments when the run was interrupted
    """
    segments = _segments(impl, kind, size_bytes, receiver, blocks=blocks, fixed=fixed_messages, phases=phases)
    if stopped_after is not None:
        segments = segments[: stopped_after + 1]  # with the warm-up
    probed = [s for s in segments if "ledger" in s["phase"]]
    events = ["cycles", "L1-dcache-load-misses", "LLC-load-misses"] if pmu else ["cpu-clock"]
    sides = ("sender", "receiver")
    cpu_ns = {side: sum(s["sides"][side]["process_cpu_ns"] for s in probed) for side in sides}
    samples = sampled(impl, kind, cpu_ns, events, PERIOD_NS) if probed else []
    bytes_phase = _bytes_phase(phases, fixed_messages)
    counted = [s for s in segments if s["phase"] == bytes_phase]
    working = [row["id"] for row in hooks(impl) if row["state"] == "attached"]
    return {
        "schema": 2,
        "copyscope": {"version": "0.1.0", "git": "0123456789ab", "dirty": False},
        "run": {
            "id": f"profile-{impl}-0",
            **dict.fromkeys(("experiment", "factors")),
            **dict.fromkeys(("repeat", "order"), 0),
            "seed": 42,
            "started": "2025-01-01T00:00:00Z",
            "wall_s": 4.1,
            "interrupted": stopped_after is not None,
            "errors": _errors(died, stopped_after is not None),
            "sides": list(sides),
            "bytes_phase": bytes_phase,
            "measured_s": sum(s["end_ns"] - s["begin_ns"] for s in segments if s["phase"] != "warmup") / 1e9,
            "segments": segments,
        },
        "workload": {
            "impl": impl,
            "size_bytes": size_bytes,
            "fields": 8,
            "threads": threads,
            "duration_s": None if fixed_messages else 3.0,
            "messages": fixed_messages,
            "mode": "stream",
            "receiver": receiver,
            "align": "heap",
            "pages": "4k",
            "working_set_messages": 16,
            **{"touch": False, "verify": False, "nodelay": True},
            "congestion_control": "cubic",
            **dict.fromkeys(("sndbuf_bytes", "rcvbuf_bytes")),
            "placement": "split",
            "time_every": 1 if fixed_messages else 16,
        },
        "topology": topology(kind, packet_sockets or [], scatter_gather),
        "machine": machine(pmu),
        "traffic": {
            side: _last_words(side, segments) if side in died else _report(side, impl, threads, segments)
            for side in sides
        },
        "counters": counters(cpu_ns, pmu),
        "bytes": kernel_bytes(impl, receiver, counted),
        "calls": kernel_calls([s for s in segments if "calls" in s["phase"]], 1 if fixed_messages else GATE),
        "functions": None,
        "hooks": hooks(impl),
        "sampler": sampler(events, sum(s["end_ns"] - s["begin_ns"] for s in probed))
        if probed
        else NO_SAMPLER,
        "samples": samples,
        "loss": dict.fromkeys([*LOSSES, *(f"recursion_{name}" for name in working)], 0),
        **(COLLECTOR_DIED if "collector" in died else {}),
        "machine_state": quiet_machine(segments),
        "placement": {side: [pinned(cpu)] for cpu, side in enumerate(("sender", "receiver"))},
    }


def write(record: Record, path: Path) -> None:
    """Write a record to a file, as a run does."""
    path.write_bytes(store.compressed(record) if path.suffix == ".gz" else store.serialise(record))


def phase_total(record: Record, side: str, key: str, phase: str) -> int:
    """Return the sum of a total of a side over the segments of a phase."""
    segments = record["run"]["segments"]
    return sum(segment["sides"][side][key] for segment in segments if segment["phase"] == phase)


def pinned(cpu: int) -> Record:
    """Return a CPU of the guest as the section `placement` has it."""
    near = {"core_type": None, "node": 0, "llc_level": 3, "llc_cpus": "0-1"}
    return {"cpu": cpu, "core_cpus": str(cpu), **near}


def quiet_machine(segments: list[Record]) -> Record:
    """Return the section `machine_state` of a machine on which only the sides and copyscope used CPU time."""
    measured = [segment for segment in segments if segment["phase"] != "warmup"]
    if not measured:
        return dict(to_builtins(machine_load([], 0)))
    sides_ns = sum(s["sides"][side]["process_cpu_ns"] for s in measured for side in ("sender", "receiver"))
    wall_ns = measured[-1]["end_ns"] - measured[0]["begin_ns"]
    return dict(to_builtins(machine_load(loads(wall_ns, sides_ns), sides_ns)))


LOSSES = ("samples_stack_map_full", "samples_stack_unreadable", "calls_task_map_full")
# Section `sampler` of a run without samples, and sections of a run whose collector gave no report.
NO_SAMPLER: Record = {
    **{"events": [], "frequency_hz": 4000, "enabled_ns": 0, "taxonomy_version": "1"},
}
COLLECTOR_DIED: Record = {
    **{"bytes": [], "calls": [], "functions": None, "hooks": [], "samples": [], "loss": {}},
    "sampler": NO_SAMPLER,
}


def _bytes_phase(phases: tuple[str, ...], fixed: int | None) -> str | None:
    """Return the phase in which the kernel counts bytes, or None."""
    if fixed:
        return "ledger+calls"
    return next((phase for phase in ("bytes", "ledger") if phase in phases), None)


def _errors(died: tuple[str, ...], interrupted: bool) -> list[str]:
    stopped = ["interrupted: the run was stopped before its end"] if interrupted else []
    return [*stopped, *(f"{name}: ended by SIGKILL" for name in died)]


def _last_words(side: str, segments: list[Record]) -> Record:
    """Return the report of a side that died: the totals that it last printed, with the warm-up."""
    totals = summed([s["sides"][side] for s in segments])
    mark = {**totals, "event": "mark", "role": side, "pid": 4711, "t_ns": segments[-1]["end_ns"]}
    marks: Any = ({}, {}, {side: mark}, {})
    return side_report(None, [MeasuredSegment(0, 0, "ledger", marks)], side)


def hook_of(record: Record, name: str) -> Record:
    """Return the row of a hook."""
    return next(row for row in record["hooks"] if row["id"] == name)


def without_task_clock(record: Record) -> Record:
    """Remove task-clock from a record, so that CPU time comes from the CPU clock of the processes."""
    for events in record["counters"].values():
        events.pop("task-clock")
    return record


def _segments(
    impl: str, kind: str, size: int, receiver: str, *, blocks: int, fixed: int | None, phases: tuple[str, ...]
) -> list[dict[str, Any]]:
    plan = [(-1, "warmup"), *((b, phase) for b in range(blocks) for phase in _rotated(phases, b))]
    if fixed:
        plan = [(0, "ledger+calls")]
    segments, now_ns = [], 1_000_000_000_000
    for index, (block, phase) in enumerate(plan, start=0 if fixed else -1):
        rate, sender_ns, receiver_ns, user_copies, calls_per_message = RATES[impl]
        ratio = PHASE_RATIO.get(phase, (1.0,))[block % len(PHASE_RATIO.get(phase, (1.0,)))]
        messages = fixed if fixed is not None else int(rate * ratio)
        calls = messages * calls_per_message
        sent_bytes = messages * size if calls else 0
        sender = _totals(sent_bytes, messages, calls, sender_ns)
        every = 1 if fixed else 16
        timed = messages // every if user_copies else 0
        sender |= {
            **dict.fromkeys(("short_sends", "eagain", "gather_broken_messages"), 0),
            "gather_timed_messages": timed,
            "gather_timed_ns": timed * GATHER_NS_PER_MESSAGE,
            "send_syscalls": {SYSCALL.get(impl, "send"): calls},
            "zerocopy": zero_copy_totals(kind, calls, size) if impl in WITH_COMPLETIONS else None,
        }
        if impl == "uring_zc":  # records from before this strategy lack the key
            sender["io_uring"] = {"requests": calls, "worker_cpu_ns": 0}
        if impl == "sendfile":  # records from before this strategy lack the key
            sender["spliced"] = {"calls": calls, "bytes": sent_bytes}
        reads = sent_bytes // 131_072 + 1 + (sent_bytes // size if receiver == "map" else 0)
        reader = _totals(sent_bytes, messages if calls else 0, reads if calls else 0, receiver_ns)
        reader |= {"verify": None, "truncated_bytes": sent_bytes if receiver == "trunc" else 0}
        reader |= taken_without_a_call(receiver, sent_bytes)
        named = {"index": index, "block": block, "phase": phase}
        ends = {"begin_ns": now_ns, "end_ns": now_ns + SEGMENT_NS}
        sides = {"sender": {"role": "sender", **sender}, "receiver": {"role": "receiver", **reader}}
        segments.append({**named, **ends, "sides": sides})
        now_ns += SEGMENT_NS + 5_000_000
    return segments


def taken_without_a_call(receiver: str, bytes_: int) -> dict[str, Any]:
    """Return the totals of a receiver that takes bytes by mapping, splicing or io_uring.

    Other receivers get no keys, as in records from before these receivers existed.
    """
    if receiver == "map":  # one page of each 64 KiB is copied, half of it by the mapping call
        messages = bytes_ // 65536
        mapped = {"calls": messages, "bytes": messages * 15 * 4096, "pages": messages * 15}
        return {"mapped": {**mapped, "copied_bytes": messages * 2048}, "spliced": None}
    if receiver == "splice":
        return {"mapped": None, "spliced": {"calls": bytes_ // 131_072 + 1, "bytes": bytes_}}
    if receiver == "multishot":
        return {"mapped": None, "spliced": None, "io_uring": {"requests": 1, "enters": 7}}
    return {}


def _rotated(phases: tuple[str, ...], by: int) -> tuple[str, ...]:
    return phases[by % len(phases) :] + phases[: by % len(phases)]


def _totals(bytes_: int, messages: int, calls: int, cpu_ns: int) -> dict[str, Any]:
    return {
        "bytes": bytes_,
        "messages": messages,
        "calls": calls,
        "process_cpu_ns": cpu_ns,
        "user_ns": cpu_ns // 10,
        "system_ns": cpu_ns - cpu_ns // 10,
        "voluntary_switches": 900,
        "involuntary_switches": 12,
    }


def quantiles(p50: float, p99: float) -> Record:
    """Return a histogram in ns with this median and 99th percentile."""
    edges = {"count": 1, "min": 0, "max": round(p99), "mean": p50}
    return {**edges, "p50": p50, "p90": p99, "p99": p99, "p999": p99, "buckets": []}


def sent_in(messages: int) -> dict[str, Any]:
    """Return a histogram of send times as the traffic program reports it: every 16th message is timed."""
    count = max(1, messages // 16)
    quantiles = {"p50": 16_000, "p90": 18_000, "p99": 41_000, "p999": 130_000}
    edges = {"count": count, "min": 9_000, "max": 2_100_000, "mean": 16_900.0}
    return {**edges, **quantiles, "buckets": [[8192, 16384, count]]}


def _report(side: str, impl: str, threads: int, segments: list[dict[str, Any]]) -> dict[str, Any]:
    totals = summed([s["sides"][side] for s in segments]) if segments else {}
    report = {
        "t_ns": segments[-1]["end_ns"] if segments else 0,
        **totals,
        "role": side,
        "impl": impl,
        "pid": 4711 if side == "sender" else 4712,
        "options": {"threads": threads},
        "claim": {"user_copies": RATES[impl][3], "kernel_copies": int(impl not in BY_REFERENCE)},
        "threads": [
            {
                "tid": 5000 + i,
                "cpu_ns": totals.get("process_cpu_ns", 0) // threads,
                **{key: totals.get(key, 0) // threads for key in ("bytes", "messages", "calls")},
                "tcp_info": tcp_info(0 if i else totals.get("bytes", 0), side),
            }
            for i in range(threads)
        ],
        "histograms": {
            "send_time_ns": sent_in(totals["messages"]) if side == "sender" else None,
            **dict.fromkeys(("completion_time_ns", "round_trip_ns")),
        },
        "limits": {"memlock_bytes": 8_388_608, "optmem_max_bytes": 131_072},
        "errors": [],
    }
    if side == "receiver":
        report["verify"] = None
    return report


def checked_again(full: Record, gather_ns: float | None = 0) -> list[Identity]:
    """Check a record again whose derived rows were changed; return all checks."""
    raw, derived = convert(full, Measured), convert(full, Derived)
    of_time = time_checks(raw, side_times(raw), derived.sides, [*derived.ledger, *derived.stages], gather_ns)
    return check_balances(own_traffic.ROWS, raw) + of_time

"""From a raw record to a complete one: `derive` fills in every section that follows from the others.

Pure and idempotent: the derived sections depend on the raw ones only, so a record can be derived again when
a rule has changed, and the raw data are never touched.
"""

from __future__ import annotations

from typing import Any

from copyscope.ledger import flows
from copyscope.ledger.attribution import SideTime, clocked, side_times, softirq_beside
from copyscope.ledger.cpu_time import cpu_time, excludes_softirq
from copyscope.ledger.functions import exact_rows, function_identities
from copyscope.ledger.identities.bytes import byte_identities, cell, excused
from copyscope.ledger.identities.calls import call_identities
from copyscope.ledger.identities.time import sampled_share, time_identities
from copyscope.ledger.limit import on_cpu_share
from copyscope.ledger.losses import losses
from copyscope.ledger.machine_state import machine_state
from copyscope.ledger.overhead import overhead
from copyscope.ledger.program.derive import derive as derive_program
from copyscope.ledger.rows import ledger_rows, stage_rows
from copyscope.ledger.verdict import find_verdict, zerocopy_section
from copyscope.ledger.zerocopy_cause import find_cause
from copyscope.ledger.zerocopy_life import zerocopy_life
from copyscope.record.segments import (
    PROCESSES,
    Record,
    goodput_gbps,
    measured,
    select,
    total,
    watched,
    why_no_ledger,
)


def whole(record: Record) -> Record:
    """The record as it is; of one that holds its raw sections only, with all that is derived of them."""
    return record if "verdict" in record else derive(record)


def derive(record: Record) -> Record:
    """A new record with all derived sections; the one given is not changed.

    Raises KeyError when a raw key is missing (`record.validate(record, raw=True)` names it).
    """
    if watched(record):
        return derive_program(record)
    times = side_times(record)
    segments = measured(record)
    ledger = ledger_rows(record, times)
    gather_ns = next(row["cpu_ns"] for row in ledger if row["account"] == "gather")
    by_side = sides(record, times)
    full = record | {
        "tx_bytes": total(segments, "sender", "bytes"),
        "rx_bytes": total(segments, "receiver", "bytes"),
        "messages": total(segments, "sender", "messages"),
        "throughput_gbps": throughput(record),
        "ledger": ledger,
        "stages": stage_rows(record, times, gather_ns),
        "sides": by_side,
        "zerocopy": zerocopy(record, ledger),
        "loss": losses(record),
        "overhead": overhead(record),
        "machine_state": machine_state(record, by_side),
        "exact": exact_rows(record),
        "zerocopy_life": zerocopy_life(record),
    }
    # These compare the sections above with each other.
    found = byte_identities(full) + call_identities(full) + time_identities(full, times, gather_ns)
    found += function_identities(record)
    full["identities"] = [excused(record, identity) for identity in found]
    full["verdict"] = find_verdict(full)
    return full


def throughput(record: Record) -> dict[str, Any]:
    """Goodput in Gbit/s without instruments and with those of the ledger arm."""
    section: dict[str, Any] = {"reasons": {}}
    for key, arm in (("unprobed", "unprobed"), ("probed", "ledger")):
        section[key] = goodput_gbps(select(record, arm))
        if section[key] is None:
            section["reasons"][key] = f"no segment of the arm {arm} in this run"
    return section


def sides(record: Record, times: dict[str, SideTime]) -> dict[str, Any]:
    """CPU time, samples and how much of it is unexplained, for each side."""
    segments = select(record, "ledger")
    absent = why_no_ledger(record)
    section: dict[str, Any] = {}
    for side in PROCESSES:
        time = times[side]
        spent = cpu_time(record, side)
        spent_ns: float = spent.ns
        if time.scale_ns is not None and excludes_softirq(record, side):
            spent_ns += (time.weights.all_weight - clocked(time.weights, record, side)) * time.scale_ns
        row: dict[str, Any] = {
            "cpu_ns": round(spent_ns),
            "cpu_source": spent.source,
            "burst_ns": round(spent.burst_ns),
            "sampled_share": None,
            "user_ns": total(segments, side, "user_ns"),
            "reasons": {},
            "samples": time.weights.all_samples,
            "unattributed_share": None,
            "on_cpu_share_of_wall": on_cpu_share(record, side),
        }
        if time.cpu_ns:
            nameless = sum(
                w for (_, category, _), w in time.weights.weight.items() if category == "unattributed"
            )
            row["unattributed_share"] = round(nameless / time.weights.all_weight, 6)
            row["sampled_share"] = sampled_share(record, side, time)
        else:
            for key in ("unattributed_share", "sampled_share"):
                row["reasons"][key] = time.reason or "no CPU time was sampled"
        if row["sampled_share"] is None:
            row["reasons"].setdefault("sampled_share", "no counter to compare the samples with")
        if row["on_cpu_share_of_wall"] is None:
            row["reasons"]["on_cpu_share_of_wall"] = absent or "the segments took no time"
        if absent:
            unknown = ("cpu_ns", "burst_ns", "user_ns")
            row |= dict.fromkeys(unknown)
            row["reasons"] |= dict.fromkeys(unknown, absent)
        section[side] = row
    return section | softirq_beside(record, times)


def zerocopy(record: Record, ledger: list[dict[str, Any]]) -> dict[str, Any] | None:
    """What became of the zero-copy sends, with the cause when they were copied; None for other strategies."""
    silent = cell(ledger, "silent", "bytes")
    segments = measured(record)
    copied = sum(int((s["sender"]["zerocopy"] or {}).get("copied", 0)) for s in segments)
    cause = find_cause(record, copied, silent or 0)
    uncopied = None if why_no_ledger(record) else flows.zero_copy_bytes(record, silent or 0)
    return zerocopy_section(record, None if uncopied is None else silent or 0, uncopied, cause)

"""The ledger of a program that copyscope did not write: `derive` for a record with a target. Pure.

One side, `target`, and `other`. Rates are per KiB of payload that the program moved through its sockets, sent
or received.
"""

from __future__ import annotations

from typing import Any

from copyscope.ledger.attribution import SideTime, clocked, side_times, softirq_beside
from copyscope.ledger.cpu_time import cpu_time, excludes_softirq, why_no_time
from copyscope.ledger.functions import exact_rows
from copyscope.ledger.identities.bytes import excused
from copyscope.ledger.identities.program import watch_identities
from copyscope.ledger.identities.program_functions import function_identities
from copyscope.ledger.identities.time import sampled_share, time_identities
from copyscope.ledger.losses import losses
from copyscope.ledger.machine_state import machine_state
from copyscope.ledger.overhead import overhead
from copyscope.ledger.program.attached_effect import attached_effect
from copyscope.ledger.program.flows import flows, why_no_completions, zerocopy_totals
from copyscope.ledger.program.traffic_profile import portrait
from copyscope.ledger.program.verdict import find_verdict
from copyscope.ledger.rows import CONTEXTS, HOME, delivered_kib, sampled_row, silent_high_ns, with_flow
from copyscope.ledger.zerocopy_cause import find_cause
from copyscope.ledger.zerocopy_life import zerocopy_life
from copyscope.record.segments import (
    Record,
    comparable,
    delivered_bytes,
    goodput_gbps,
    select,
    total,
    wall_ns,
)
from copyscope.taxonomy.taxonomy import ACCOUNTS, STAGES

Row = dict[str, Any]
SIDES = ("target", "other")


def derive(record: Record, *, effects: bool = True) -> Record:
    """A new record with all derived sections; the one given is not changed.

    Without `effects` what watching cost is left out: its intervals take longer than all the rest.
    """
    times = side_times(record)
    segments = record["run"]["segments"]
    ledger = ledger_rows(record, times)
    by_side = sides(record, times)
    full = record | {
        "tx_bytes": total(segments, "target", "bytes_sent"),
        "rx_bytes": total(segments, "target", "bytes_received"),
        "messages": total(segments, "target", "send_calls"),
        "throughput_gbps": throughput(record),
        "ledger": ledger,
        "stages": stage_rows(record, times),
        "sides": by_side,
        "zerocopy": zerocopy(record, ledger),
        "loss": losses(record),
        "overhead": (overhead(record) if effects else {}) | {"attached": attached_effect(record)},
        "machine_state": machine_state(record, by_side),
        "exact": exact_rows(record),
        "zerocopy_life": zerocopy_life(record),
        "portrait": portrait(record),
        "advice": record.get("advice"),
    }
    # These compare the sections above with each other.
    found = watch_identities(record) + time_identities(full, times, 0) + function_identities(record)
    full["identities"] = [excused(record, identity) for identity in found]
    full["verdict"] = find_verdict(full)
    return full


def throughput(record: Record) -> Row:
    """What the program moved, in Gbit/s: with its bytes counted only, and with the ledger's instruments."""
    section: Row = {"reasons": {}}
    for key, arm in (("unprobed", "unprobed"), ("probed", "ledger")):
        segments = comparable(record, arm)
        section[key] = goodput_gbps(segments)
        if section[key] is None:
            section["reasons"][key] = f"no segment of the arm {arm} in this run"
        elif not section[key] and delivered_bytes(record["run"]["segments"]):
            # It did its work in the others: that says nothing of how fast it would have been.
            section[key] = None
            section["reasons"][key] = f"nothing moved in the segments of the arm {arm}"
    return section


def ledger_rows(record: Record, times: dict[str, SideTime]) -> list[Row]:
    """One row per account, side and context that was sampled, and the home row of every account."""
    moved = flows(record, silent_high_ns(times))
    kib = delivered_kib(record)
    rows = []
    for account in ACCOUNTS:
        if account not in moved:  # the program's own copies: its memory is its business
            continue
        for side in SIDES:
            for context in CONTEXTS:
                key = ("account", account, context)
                home = side == "target" and HOME[account][1] == context
                if not home and key not in times[side].weights.samples:
                    continue
                row = {"account": account} | sampled_row(record, times[side], side, key, kib)
                home_row = f"{account} target {HOME[account][1]}"
                rows.append(with_flow(row, moved[account], home_row, home=home))
    return rows


def stage_rows(record: Record, times: dict[str, SideTime]) -> list[Row]:
    """One row per stage, side and context; user and unattributed always."""
    kib = delivered_kib(record)
    rows = []
    for stage in STAGES:
        for side in SIDES:
            for context in CONTEXTS:
                key = ("stage", stage, context)
                always = side == "target" and (stage, context) in (
                    ("user", "user"),
                    ("unattributed", "process"),
                )
                if always or key in times[side].weights.samples:
                    rows.append({"stage": stage} | sampled_row(record, times[side], side, key, kib))
    return rows


def sides(record: Record, times: dict[str, SideTime]) -> Row:
    """CPU time of the program, and how much of it is unexplained."""
    time, absent = times["target"], why_no_time(record, "target")
    spent = cpu_time(record, "target")
    spent_ns: float = spent.ns
    if time.scale_ns is not None and excludes_softirq(record, "target"):
        covered = clocked(time.weights, record, "target")
        spent_ns += (time.weights.all_weight - covered) * time.scale_ns
    elapsed_ns = wall_ns(select(record, "ledger"))
    row: Row = {
        "cpu_ns": None if absent else round(spent_ns),
        "cpu_source": spent.source,
        "burst_ns": None if absent else round(spent.burst_ns),
        "cpus_used": spent_ns / elapsed_ns if elapsed_ns and absent is None else None,
        "samples": time.weights.all_samples,
        "sampled_share": None,
        "unattributed_share": None,
        "reasons": {},
    }
    if time.cpu_ns:
        nameless = sum(w for (_, category, _), w in time.weights.weight.items() if category == "unattributed")
        row["unattributed_share"] = round(nameless / time.weights.all_weight, 6)
        row["sampled_share"] = sampled_share(record, "target", time)
    reason = absent or time.reason or "no CPU time was sampled, or no counter to compare it with"
    row["reasons"] = {key: reason for key, value in row.items() if value is None}
    return {"target": row, **softirq_beside(record, times)}


def zerocopy(record: Record, ledger: list[Row]) -> Row | None:
    """What became of the sends with MSG_ZEROCOPY, as their sockets' error queues said; None without any."""
    totals = zerocopy_totals(record)
    if not totals["sends"]:
        return None
    silent = sum(row["bytes"] or 0 for row in ledger if row["account"] == "silent")
    cause = find_cause(record, totals["copied"], silent)
    blind = None if totals["completions"] else why_no_completions(record)
    unknown = dict.fromkeys(("completions", "copied", "notifications", "unseen")) if blind else {}
    return {**totals, **unknown, "reason": blind, "cause": cause}

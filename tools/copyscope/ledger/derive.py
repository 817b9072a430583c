"""From a raw record to a complete one: `derive` adds every section that follows from the others.

Pure and idempotent: the derived sections depend on the raw ones only, so a record can be derived again when
a rule has changed, and the raw data are never touched.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, structs, to_builtins

from copyscope.ledger import flows, headline, late_copies
from copyscope.ledger.attribution import SideTime, clocked, side_times, softirq_beside
from copyscope.ledger.cpu_time import cpu_time, excludes_softirq, why_no_time
from copyscope.ledger.functions import exact_rows, zerocopy_life
from copyscope.ledger.identities import own, program
from copyscope.ledger.identities.balance import check, excused
from copyscope.ledger.identities.functions import function_identities
from copyscope.ledger.identities.time import time_identities
from copyscope.ledger.limit import find_limit, find_program_limit, on_cpu_share
from copyscope.ledger.losses import losses
from copyscope.ledger.machine_state import machine_state
from copyscope.ledger.overhead import NOT_WORKED_OUT_YET, overhead
from copyscope.ledger.placement import placed
from copyscope.ledger.program import flows as program_flows
from copyscope.ledger.program import headline as program_headline
from copyscope.ledger.program import user_copies
from copyscope.ledger.program.traffic_profile import portrait
from copyscope.ledger.program.watching import NOT_YET, cost_of_watching
from copyscope.ledger.rows import cell, ledger_rows, silent_high_ns, stage_rows
from copyscope.ledger.verdict import find_verdict
from copyscope.ledger.zerocopy_cause import find_cause
from copyscope.record.check import typed
from copyscope.record.derived import (
    AccountRow,
    Derived,
    Identity,
    Limit,
    Overhead,
    Sides,
    Throughput,
    TrafficSide,
    Zerocopy,
)
from copyscope.record.program.derived import (
    DerivedProgram,
    ProgramOverhead,
    ProgramSide,
    ProgramSides,
    ProgramZerocopy,
)
from copyscope.record.program.raw import RawProgramRun
from copyscope.record.raw import RawRun, Segment
from copyscope.record.segments import (
    PROCESSES,
    Record,
    comparable,
    cut_short,
    delivered_bytes,
    goodput_gbps,
    measured,
    select,
    total,
    wall_ns,
    why_no_ledger,
    zerocopy_total,
)

Raw = RawRun | RawProgramRun
NOT_WORKED_OUT = Overhead(NOT_WORKED_OUT_YET, None, None, None, None, {}, {})


def whole(record: Record) -> Record:
    """The record as it is; of one that holds its raw sections only, with all that is derived of them."""
    return record if "verdict" in record else derive(record)


def derive(record: Record, *, effects: bool = True) -> Record:
    """A new record with all derived sections; the one given is not changed.

    Without `effects` what watching a program cost is left out: its intervals take longer than all the rest.
    Raises RecordError for a raw section that is not as its Struct says.
    """
    raw = typed(record)
    if isinstance(raw, RawProgramRun):
        made = to_builtins(derive_program(raw, effects=effects))
        return {**record, **made, "advice": record.get("advice")}
    return {**record, **to_builtins(derive_own(raw))}


def derive_own(raw: RawRun) -> Derived:
    """What follows from a run of our own traffic, step by step."""
    raw = late_copies.decided(raw, zerocopy_total(measured(raw.run.segments), "copied") or 0)
    times = side_times(raw)
    moved = flows.flows(raw, silent_high_ns(times))
    ledger = ledger_rows(raw, times, moved)
    gather_ns = next(row.cpu_ns for row in ledger if row.account == "gather")
    stages = stage_rows(raw, times, gather_ns)
    sender, receiver = (traffic_side(raw, side, times[side]) for side in PROCESSES)
    sides = Sides(sender, receiver, *softirq_beside(raw, times))
    zerocopy, cost = own_zerocopy(raw, ledger), overhead(raw)
    of_time = time_identities(raw, times, structs.asdict(sides), [*ledger, *stages], gather_ns)
    sentence = headline.find_sentence(headline.Story(raw, ledger, sides, zerocopy), cost)
    segments = measured(raw.run.segments)
    return Derived(
        tx_bytes=total(segments, "sender", "bytes"),
        rx_bytes=total(segments, "receiver", "bytes"),
        messages=total(segments, "sender", "messages"),
        ledger=ledger,
        stages=stages,
        sides=sides,
        zerocopy=zerocopy,
        overhead=cost,
        placement=placed(raw),
        **_concluded(
            raw,
            check(own.BALANCES, own.Books(raw)) + of_time,
            sides.other.cpu_ns,
            (sentence, find_limit(raw)),
        ),
    )


def derive_program(raw: RawProgramRun, *, effects: bool) -> DerivedProgram:
    """What follows from a run beside a program, in the same steps."""
    raw = late_copies.decided(raw, program_flows.zerocopy_totals(raw)["copied"])
    measured_raw, raw = raw, user_copies.decided(raw)
    times = side_times(raw)
    own_copies = user_copies.bounds(measured_raw, times["target"])
    moved = program_flows.flows(raw, silent_high_ns(times))
    rows, stages = ledger_rows(raw, times, moved), stage_rows(raw, times, 0)
    ledger = user_copies.told(rows, user_copies.why_unknown(measured_raw), own_copies, times["target"].cpu_ns)
    sides = ProgramSides(program_side(raw, times["target"]), *softirq_beside(raw, times))
    zerocopy = program_zerocopy(raw, ledger)
    of_time = time_identities(raw, times, structs.asdict(sides), [*rows, *stages], 0)
    cost, watching = (overhead(raw), cost_of_watching(raw)) if effects else (NOT_WORKED_OUT, NOT_YET)
    sentence = program_headline.find_sentence(raw, ledger, stages, zerocopy, watching, time=times["target"])
    limit = find_program_limit(raw, sides.target.cpus_used)
    segments = raw.run.segments
    return DerivedProgram(
        tx_bytes=total(segments, "target", "bytes_sent"),
        rx_bytes=total(segments, "target", "bytes_received"),
        messages=total(segments, "target", "send_calls"),
        ledger=ledger,
        stages=stages,
        sides=sides,
        zerocopy=zerocopy,
        overhead=ProgramOverhead(**structs.asdict(cost), watching=watching),
        advice=None,
        portrait=portrait(raw),
        **_concluded(raw, check(program.BALANCES, raw) + of_time, sides.other.cpu_ns, (sentence, limit)),
    )


def _concluded(
    raw: Raw, identities: Sequence[Identity], beside_ns: float | None, finding: tuple[str, Limit]
) -> dict[str, Any]:
    """What is alike in both: the checks as far as they count, and the verdict that follows.

    beside_ns: of the side `other`; finding: the main finding, and who was the limit.
    """
    loss, state = losses(raw), machine_state(raw, beside_ns)
    found = [*identities, *function_identities(raw)]
    # A run that ended inside a segment has broken some of them by that.
    found = [excused(identity) for identity in found] if cut_short(raw.run) else found
    return {
        "throughput_gbps": throughput(raw),
        "loss": loss,
        "exact": exact_rows(raw),
        "zerocopy_life": zerocopy_life(raw.functions),
        "identities": found,
        "verdict": find_verdict(raw, found, loss, state.sentence, finding),
        "machine_state": state,
    }


def throughput(raw: Raw) -> Throughput:
    """Goodput in Gbit/s without instruments (of a program: its bytes counted only) and with the ledger's."""
    found: dict[str, float | None] = {}
    reasons = {}
    for key, arm in (("unprobed", "unprobed"), ("probed", "ledger")):
        found[key] = goodput_gbps(comparable(raw.run.segments, arm))
        if found[key] is None:
            reasons[key] = f"no segment of the arm {arm} in this run"
        elif not found[key] and isinstance(raw, RawProgramRun) and delivered_bytes(raw.run.segments):
            # It did its work in the others: that says nothing of how fast it would have been.
            found[key] = None
            reasons[key] = f"nothing moved in the segments of the arm {arm}"
    return Throughput(reasons=reasons, **found)


def spent_ns(raw: Raw, side: str, time: SideTime) -> float:
    """CPU time of a side, with the softirq time on top of it, which its clock may leave out."""
    spent = float(cpu_time(raw, side).ns)
    if time.scale_ns is not None and excludes_softirq(raw, side):
        spent += (time.weights.all_weight - clocked(time.weights, raw, side)) * time.scale_ns
    return spent


def _side(raw: Raw, side: str, time: SideTime, absent: str | None) -> dict[str, Any]:
    """CPU time and samples of one process, and how much of it is unexplained."""
    spent = cpu_time(raw, side)
    row: dict[str, Any] = {
        "cpu_ns": round(spent_ns(raw, side, time)),
        "cpu_source": spent.source,
        "samples": time.weights.all_samples,
        "unattributed_share": None,
    }
    reasons = {}
    if time.cpu_ns:
        nameless = sum(w for (_, category, _), w in time.weights.weight.items() if category == "unattributed")
        row["unattributed_share"] = round(nameless / time.weights.all_weight, 6)
    else:
        reasons["unattributed_share"] = time.reason or "no CPU time was sampled"
    if absent:
        row["cpu_ns"] = None
        reasons["cpu_ns"] = absent
    return row | {"reasons": reasons}


def traffic_side(raw: RawRun, side: str, time: SideTime) -> TrafficSide:
    """One of our own processes."""
    absent = why_no_ledger(raw.run)
    row = _side(raw, side, time, absent)
    row["user_ns"] = None if absent else total(select(raw.run.segments, "ledger"), side, "user_ns")
    row["on_cpu_share_of_wall"] = on_cpu_share(raw, side)
    if raw.placement:
        row["cpus"] = [one.cpu for one in getattr(raw.placement, side)]
    if absent:
        row["reasons"]["user_ns"] = absent
    if row["on_cpu_share_of_wall"] is None:
        row["reasons"]["on_cpu_share_of_wall"] = absent or "the segments took no time"
    return TrafficSide(**row)


def program_side(raw: RawProgramRun, time: SideTime) -> ProgramSide:
    """A watched program."""
    absent = why_no_time(raw, "target")
    row = _side(raw, "target", time, absent)
    elapsed_ns = wall_ns(select(raw.run.segments, "ledger"))
    row["cpus_used"] = None if absent or not elapsed_ns else spent_ns(raw, "target", time) / elapsed_ns
    if row["cpus_used"] is None:
        row["reasons"]["cpus_used"] = absent or "the segments took no time"
    return ProgramSide(**row)


def own_zerocopy(raw: RawRun, ledger: Sequence[AccountRow]) -> Zerocopy | None:
    """What became of the zero-copy sends, with the cause when they were copied; None for other strategies.

    `bytes_silent` and `bytes_zero_copy` are of the ledger segments, the others of all that were measured.
    """
    segments = measured(raw.run.segments)
    if zerocopy_total(segments, "sends") is None:
        return None
    keys = ("sends", "completions", "copied", "bytes_sent", "bytes_copied", "enobufs", "notifications")
    totals = {key: zerocopy_total(segments, key) or 0 for key in keys}
    silent = cell(ledger, "silent") or 0
    absent = why_no_ledger(raw.run)
    return Zerocopy(
        **totals,
        max_in_flight=max(s.sender.zerocopy.max_in_flight for s in segments if s.sender.zerocopy),
        bytes_silent=None if absent else silent,
        bytes_zero_copy=None if absent else flows.zero_copy_bytes(raw, silent),
        cause=find_cause(raw, totals["copied"], silent),
        **_waiting(raw, segments),
    )


def _waiting(raw: RawRun, segments: Sequence[Segment]) -> dict[str, Any]:
    """How often the sender waited for a notice, and for which part of its threads' time."""
    made = [s.sender.zerocopy for s in segments if s.sender.zerocopy]
    if any(one.wait_ns is UNSET for one in made):
        return {}
    waits, waited_ns = (sum(getattr(one, key) for one in made) for key in ("waits", "wait_ns"))
    threads = 1 if raw.workload.sender == "loop" else raw.workload.threads
    return {"waits": waits, "waiting_share": waited_ns / (wall_ns(segments) * threads)}


def program_zerocopy(raw: RawProgramRun, ledger: Sequence[AccountRow]) -> ProgramZerocopy | None:
    """What became of the sends with MSG_ZEROCOPY, as their sockets' error queues said; None without any."""
    totals: dict[str, Any] = dict(program_flows.zerocopy_totals(raw))
    if not totals["sends"]:
        return None
    silent = cell(ledger, "silent") or 0
    cause = find_cause(raw, totals["copied"], silent)
    blind = None if totals["completions"] else program_flows.why_no_completions(raw.hooks)
    if blind:
        totals |= dict.fromkeys(("completions", "copied", "notifications", "unseen"))
    return ProgramZerocopy(**totals, reason=blind, cause=cause)

"""From a raw record to a complete one: `derive` adds every section that follows from the others.

Pure and idempotent: the derived sections depend on the raw ones only, so a record can be derived again when
a rule has changed, and the raw data are never touched.
"""

from msgspec import to_builtins

from copyscope.ledger import attribution, user_copies
from copyscope.ledger.attribution import (
    SideTime,
    clocked,
    cpu_time,
    excludes_softirq,
    side_times,
    softirq_beside,
    why_no_time,
)
from copyscope.ledger.checks import own_traffic, target
from copyscope.ledger.checks.balance import check, excused
from copyscope.ledger.checks.exact import function_identities
from copyscope.ledger.checks.time import time_identities
from copyscope.ledger.flows import encrypted, flows
from copyscope.ledger.functions import exact_rows, zerocopy_life
from copyscope.ledger.headline import find_sentence
from copyscope.ledger.limit import find_limit
from copyscope.ledger.machine_state import machine_state, placed
from copyscope.ledger.overhead import NOT_WORKED_OUT, overhead
from copyscope.ledger.portrait import portrait
from copyscope.ledger.rows import ledger_rows, silent_high_ns, stage_rows
from copyscope.ledger.sends import sends_of
from copyscope.ledger.verdict import find_verdict, losses
from copyscope.ledger.zerocopy import zerocopy_of
from copyscope.record.check import Whole, typed, typed_boot, typed_whole
from copyscope.record.derived import Derived, Side, Sides, SimulatedRun, Throughput
from copyscope.record.measured import Measured
from copyscope.record.segments import (
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
)


def whole(record: Record) -> Record:
    """The record as it is; of one that holds its raw sections only, with all that is derived of them."""
    return record if "verdict" in record else derive(record)


def whole_run(record: Record) -> Whole:
    """The same, typed. Raises RecordError, as typed_whole() does."""
    if "verdict" in record:
        return typed_whole(record)
    raw = typed(record)
    return Whole(raw, derived(raw))


def any_run(record: Record) -> Whole | SimulatedRun:
    """A record of either kind, typed. Raises RecordError, as typed_whole() does."""
    return typed_boot(record) if "simulated" in record else whole_run(record)


def derive(record: Record, *, effects: bool = True) -> Record:
    """A new record with all derived sections; the one given is not changed.

    Without `effects` what watching a program cost is left out: its intervals take longer than all the rest.
    Raises RecordError for a raw section that is not as its Struct says.
    """
    made = to_builtins(derived(typed(record), effects=effects))
    kept = {name: record[name] for name in ("advice", "why") if name in record}
    return {**record, **made, **kept}


def derived(raw: Measured, *, effects: bool = True) -> Derived:
    """What follows from a run, step by step."""
    raw = attribution.decided(raw, sends_of(raw).copied)
    as_measured, raw = raw, user_copies.decided(raw)
    times = side_times(raw)
    high_ns = silent_high_ns(times)
    rows = ledger_rows(raw, times, flows(raw, high_ns) | encrypted(raw, high_ns))
    # Our own programs time it; a watched program's is sampled as all the rest.
    gather_ns = next(row.cpu_ns for row in rows if row.account == "gather") if raw.target is None else 0
    stages = stage_rows(raw, times, gather_ns)
    ledger = user_copies.bounded(as_measured, rows, times)
    sides = Sides(*softirq_beside(raw, times))
    for side in raw.run.sides:
        setattr(sides, side, process(raw, side, times[side]))
    zerocopy = zerocopy_of(raw, ledger)
    cost = overhead(raw) if effects else NOT_WORKED_OUT
    loss, state = losses(raw), machine_state(raw, sides.other.cpu_ns)
    table = own_traffic.ROWS if raw.target is None else target.ROWS
    checks = check(table, raw) + time_identities(raw, times, sides, [*rows, *stages], gather_ns)
    checks += function_identities(raw)
    # A run that ended inside a segment has broken some of them by that.
    checks = [excused(one) for one in checks] if cut_short(raw.run) else checks
    sentence = find_sentence(raw, [*ledger, *stages], sides, zerocopy, cost, times=times)
    tx_bytes, rx_bytes, messages = moved(raw)
    return Derived(
        throughput_gbps=throughput(raw),
        tx_bytes=tx_bytes,
        rx_bytes=rx_bytes,
        messages=messages,
        loss=loss,
        ledger=ledger,
        stages=stages,
        exact=exact_rows(raw),
        zerocopy_life=zerocopy_life(raw.functions),
        identities=checks,
        verdict=find_verdict(raw, checks, loss, state.disturbance, (sentence, find_limit(raw, sides))),
        machine_state=state,
        sides=sides,
        zerocopy=zerocopy,
        overhead=cost,
        placement=placed(raw),
        portrait=None if raw.target is None else portrait(raw),
    )


def moved(raw: Measured) -> tuple[int, int, int]:
    """Bytes in both directions, and messages, of a program its send calls, of all that was measured."""
    segments = measured(raw.run.segments)
    keys = [("target", "bytes_sent"), ("target", "bytes_received"), ("target", "send_calls")]
    if raw.target is None:
        keys = [("sender", "bytes"), ("receiver", "bytes"), ("sender", "messages")]
    tx_bytes, rx_bytes, messages = (total(segments, side, key) for side, key in keys)
    return tx_bytes, rx_bytes, messages


def throughput(raw: Measured) -> Throughput:
    """Goodput in Gbit/s without instruments (of a program: its bytes counted only) and with the ledger's."""
    found: dict[str, float | None] = {}
    reasons = {}
    for key, phase in (("unprobed", "unprobed"), ("probed", "ledger")):
        found[key] = goodput_gbps(comparable(raw.run.segments, phase))
        if found[key] is None:
            reasons[key] = f"no {phase} segment in this run"
        elif not found[key] and raw.target is not None and delivered_bytes(raw.run.segments):
            # It did its work in the others: that says nothing of how fast it would have been.
            found[key] = None
            reasons[key] = f"nothing moved in the {phase} segments"
    return Throughput(reasons=reasons, **found)


def spent_ns(raw: Measured, side: str, time: SideTime) -> float:
    """CPU time of a side, with the softirq time on top of it, which its clock may leave out."""
    spent = float(cpu_time(raw, side).ns)
    if time.scale_ns is not None and excludes_softirq(raw, side):
        spent += (time.weights.all_weight - clocked(time.weights, raw, side)) * time.scale_ns
    return spent


def process(raw: Measured, side: str, time: SideTime) -> Side:
    """CPU time and samples of one process, and how much of it is unexplained."""
    absent = why_no_time(raw, side) if raw.target is not None else why_no_ledger(raw.run)
    spent, elapsed_ns = spent_ns(raw, side, time), wall_ns(select(raw.run.segments, "ledger"))
    reasons = {}
    nameless = None
    if time.cpu_ns:
        without = sum(w for (_, category, _), w in time.weights.weight.items() if category == "unattributed")
        nameless = round(without / time.weights.all_weight, 6)
    else:
        reasons["unattributed_share"] = time.reason or "no CPU time was sampled"
    if absent:
        reasons["cpu_ns"] = absent
    if absent or not elapsed_ns:
        reasons["cpus_used"] = absent or "the segments took no time"
    return Side(
        cpu_ns=None if absent else round(spent),
        cpu_source=cpu_time(raw, side).source,
        samples=time.weights.all_samples,
        unattributed_share=nameless,
        cpus_used=None if absent or not elapsed_ns else spent / elapsed_ns,
        reasons=reasons,
        cpus=[one.cpu for one in getattr(raw.placement, side)] if raw.placement else None,
    )

# SPDX-License-Identifier: GPL-2.0-only
"""Derivation of all sections of a run, or of a window of a running watch, from its measured sections.

Deriving is pure and idempotent. It depends only on the measured sections and does not change them, so a
record can be derived again after a rule has changed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from copyscope.ledger import attribution, watched_program
from copyscope.ledger.attribution import (
    SideTime,
    clocked_weight,
    cpu_time,
    excludes_softirq,
    side_times,
    softirq_sides,
    why_no_cpu_time,
)
from copyscope.ledger.checks import check_balances, excuse_cut_short, own_traffic, target
from copyscope.ledger.checks.exact import function_checks
from copyscope.ledger.checks.time import time_checks
from copyscope.ledger.exact import exact_rows, zerocopy_life
from copyscope.ledger.flows import account_flows
from copyscope.ledger.headline import find_sentence
from copyscope.ledger.losses import losses
from copyscope.ledger.machine_state import OVERHEAD_PENDING, machine_state, overhead, placement
from copyscope.ledger.rows import ledger_rows, silent_max_ns, stage_rows
from copyscope.ledger.sends import send_totals
from copyscope.ledger.verdict import find_limit, find_verdict
from copyscope.ledger.zerocopy import zerocopy_of
from copyscope.record.assemble import RecordIdentity, assemble
from copyscope.record.derived import Derived, Side, Sides, Throughput
from copyscope.record.instruments import Sample
from copyscope.record.measured import Measured
from copyscope.record.messages import CollectorReport
from copyscope.record.moved import VolumeSums
from copyscope.record.run import CompleteRun, Run, Stored
from copyscope.record.sections import Reasons
from copyscope.record.segments import (
    bytes_received,
    bytes_sent,
    comparable,
    delivered_bytes,
    ended_inside_segment,
    goodput_gbps,
    measured,
    select,
    sender_sum,
    target_sum,
    wall_ns,
    why_no_ledger,
)
from copyscope.record.session_result import Connections, LoadReading, Raw


def completed(record: Stored) -> CompleteRun:
    """Return a complete record unchanged. Add the derived sections to a record of measured sections."""
    return derive(record) if isinstance(record, Measured) else record


def derive(raw: Measured, *, effects: bool = True) -> Run:
    """Return the complete run.

    effects: True to include the cost of watching, which takes longest to derive
    """
    return Run(raw, derived(raw, effects=effects))


def derived(raw: Measured, *, effects: bool = True) -> Derived:
    """Return all sections that are derived from the measured sections of a run.

    effects: True to include the cost of watching, which takes longest to derive
    """
    raw = attribution.reclassify_linearized(raw, send_totals(raw).copied)
    as_measured, raw = raw, watched_program.reclassify_unknown(raw)
    times = side_times(raw)
    silent_ns = silent_max_ns(times)
    rows = ledger_rows(raw, times, account_flows(raw, silent_ns))
    # Our own programs time the gather copy. The gather copy of a watched program is sampled.
    gather_ns = next(row.cpu_ns for row in rows if row.account == "gather") if raw.target is None else 0
    stages = stage_rows(raw, times, gather_ns)
    ledger = watched_program.with_unknown_rows(as_measured, rows, times)
    sides = sides_of(raw, times)
    zerocopy = zerocopy_of(raw, ledger)
    cost = overhead(raw) if effects else OVERHEAD_PENDING
    lost, state = losses(raw), machine_state(raw, sides.other.cpu_ns)
    balances = own_traffic.ROWS if raw.target is None else target.ROWS
    checks = [
        *check_balances(balances, raw),
        *time_checks(raw, times, sides, [*rows, *stages], gather_ns),
        *function_checks(raw),
    ]
    if ended_inside_segment(raw.run):
        checks = [excuse_cut_short(check) for check in checks]
    sentence = find_sentence(raw, [*ledger, *stages], sides, zerocopy, cost, times=times)
    totals = delivered_totals(raw)
    return Derived(
        throughput_gbps=throughput(raw),
        tx_bytes=totals.sent_bytes,
        rx_bytes=totals.received_bytes,
        messages=totals.messages,
        loss=lost,
        ledger=ledger,
        stages=stages,
        exact=exact_rows(raw),
        zerocopy_life=zerocopy_life(raw.functions),
        identities=checks,
        verdict=find_verdict(
            raw, checks, lost, state.disturbance, finding=sentence, limit=find_limit(raw, sides)
        ),
        machine_state=state,
        sides=sides,
        zerocopy=zerocopy,
        overhead=cost,
        placement=placement(raw),
        portrait=None if raw.target is None else watched_program.portrait(raw),
    )


@dataclass(frozen=True)
class DeliveredTotals:
    """Bytes in both directions, and messages, of all measured segments.

    messages: messages of our own sender, or send calls of a watched program
    """

    sent_bytes: int
    received_bytes: int
    messages: int


def delivered_totals(raw: Measured) -> DeliveredTotals:
    """Return the delivered bytes and messages of all measured segments."""
    segments = measured(raw.run.segments)
    if raw.target is not None:
        return DeliveredTotals(
            sent_bytes=target_sum(segments, lambda target: target.bytes_sent),
            received_bytes=target_sum(segments, lambda target: target.bytes_received),
            messages=target_sum(segments, lambda target: target.send_calls),
        )
    return DeliveredTotals(
        sent_bytes=bytes_sent(segments),
        received_bytes=bytes_received(segments),
        messages=sender_sum(segments, lambda sender: sender.messages),
    )


def throughput(raw: Measured) -> Throughput:
    """Return goodput without instruments and with the instruments of the ledger, in Gbit/s.

    For a watched program, the segments without instruments still count its bytes.
    """
    reasons: Reasons = {}
    goodputs = []
    for key, phase in (("unprobed", "unprobed"), ("probed", "ledger")):
        goodput = goodput_gbps(comparable(raw.run.segments, phase))
        if goodput is None:
            reasons[key] = f"no {phase} segment in this run"
        elif not goodput and raw.target is not None and delivered_bytes(raw.run.segments):
            # The program moved bytes only in other phases. Its speed in this phase is unknown, not 0.
            goodput = None
            reasons[key] = f"nothing moved in the {phase} segments"
        goodputs.append(goodput)
    return Throughput(reasons, *goodputs)


def sides_of(raw: Measured, times: Mapping[str, SideTime]) -> Sides:
    """Return the CPU time of the run's processes, and of softirq work charged to other tasks."""
    sides = Sides(*softirq_sides(raw, times))
    for name in raw.run.sides:
        side = process_side(raw, name, times[name])
        match name:
            case "sender":
                sides.sender = side
            case "receiver":
                sides.receiver = side
            case "target":
                sides.target = side
    return sides


def process_side(raw: Measured, side: str, time: SideTime) -> Side:
    """Return CPU time and samples of a process, and its share of time in functions without a taxonomy rule.

    side: name of the process's side
    time: CPU time of that side, and the samples that divide it
    """
    unknown = why_no_cpu_time(raw, side) if raw.target is not None else why_no_ledger(raw.run)
    spent_ns, elapsed_ns = spent_with_softirq_ns(raw, side, time), wall_ns(select(raw.run.segments, "ledger"))
    reasons: Reasons = {}
    unattributed_share = None
    if time.cpu_ns:
        unattributed = sum(w for key, w in time.weights.weight.items() if key.category == "unattributed")
        unattributed_share = round(unattributed / time.weights.all_weight, 6)
    else:
        reasons["unattributed_share"] = time.reason or "no CPU time was sampled"
    if unknown:
        reasons["cpu_ns"] = unknown
    if unknown or not elapsed_ns:
        reasons["cpus_used"] = unknown or "the segments took no time"
    return Side(
        cpu_ns=None if unknown else round(spent_ns),
        cpu_source=cpu_time(raw, side).source,
        samples=time.weights.all_samples,
        unattributed_share=unattributed_share,
        cpus_used=None if unknown or not elapsed_ns else spent_ns / elapsed_ns,
        reasons=reasons,
        cpus=[pinned.cpu for pinned in raw.placement.of(side)] if raw.placement else None,
    )


def spent_with_softirq_ns(raw: Measured, side: str, time: SideTime) -> float:
    """Return the CPU time of a side in ns, including softirq work charged to it.

    The clock of a side may exclude softirq work, which is then taken from the samples.

    time: CPU time of the side, and the samples that divide it
    """
    spent_ns = float(cpu_time(raw, side).ns)
    if time.scale_ns is not None and excludes_softirq(raw, side):
        spent_ns += (time.weights.all_weight - clocked_weight(time.weights, raw, side)) * time.scale_ns
    return spent_ns


# The last seconds of a running watch as a complete run, so that the live view shows the same ledger.

# Number of blocks of segments in a window.
WINDOW_BLOCKS = 4
# Upper bound of the number of segments in a window.
SEGMENTS_MAX = 8 * WINDOW_BLOCKS


class Window:
    """The last blocks of a running watch, with their samples: the collector reports each sample once."""

    def __init__(self, target: Mapping[str, object], frequency_hz: int, *, in_turn: bool = False) -> None:
        """Start an empty window.

        target: the record's section about the watched program
        frequency_hz: samples per second of each CPU
        in_turn: True if each run begins where the previous run ended, instead of WINDOW_BLOCKS ago
        """
        self._in_turn = in_turn
        # Number of segments that earlier calls of run() have returned. Used only with `in_turn`.
        self._reported = 0
        self._target = target
        self._frequency_hz = frequency_hz
        self._identity = RecordIdentity("live", None, 0, 0, 0, None, None)
        # Samples of earlier calls of run(), each with its last block, and the machine's load at the end of
        # each block.
        self._samples: list[tuple[int, Sequence[Sample]]] = []
        self._loads: list[tuple[int, LoadReading]] = []

    def add_load(self, block: int, load: LoadReading) -> None:
        """Add the machine's load at the end of a segment. Only the last load of each block is kept.

        block: number of the block that the segment belongs to
        load: result of machine.read_load()
        """
        earlier = [(other, reading) for other, reading in self._loads if other != block]
        self._loads = [*earlier[-WINDOW_BLOCKS:], (block, load)]

    def run(self, measured_so_far: Raw, report: CollectorReport) -> Run:
        """Return the window as a complete run.

        measured_so_far: all that the watch has measured since its start, or since forget()
        report: the collector's samples since the previous call
        """
        all_segments = measured_so_far.segments
        last_block = all_segments[-1].block
        first_block = max(0, last_block - WINDOW_BLOCKS + 1)
        segments = [s for s in all_segments[-SEGMENTS_MAX:] if s.block >= first_block]
        if self._in_turn:
            segments, self._reported = all_segments[self._reported :], len(all_segments)
        recent = replace(
            measured_so_far,
            segments=segments,
            sums=VolumeSums(),
            loads=self._loads_since(first_block, measured_so_far.loads),
            collector=report,
            # The live view shows no connections, and thousands of them would take longest to derive.
            connections=Connections(),
            counters={},
        )
        raw = assemble(recent, self._identity, self._frequency_hz, target=self._target)
        if self._in_turn:
            self._samples = []
        self._samples = [(block, rows) for block, rows in self._samples if block >= first_block]
        self._samples.append((last_block, raw.samples))
        raw.samples = add_samples(rows for _, rows in self._samples)
        return derive(raw, effects=False)

    def forget(self, measured_so_far: Raw) -> None:
        """Drop all reported segments except the last, whose end is the start of the next segment."""
        del measured_so_far.segments[:-1]
        measured_so_far.sums.clear()
        measured_so_far.connections = Connections()
        self._reported = len(measured_so_far.segments)

    def _loads_since(self, first_block: int, first_loads: Sequence[LoadReading]) -> list[LoadReading]:
        """Return the readings of the machine's load at the start and end of the window.

        first_block: number of the window's first block
        first_loads: readings of the run in order of time; the first was made at the start of the run
        """
        before = [*first_loads[:1], *(load for block, load in self._loads if block < first_block)]
        return [*before[-1:], *(load for _, load in self._loads[-1:])]


def add_samples(reports: Iterable[Sequence[Sample]]) -> list[Sample]:
    """Return the sum of the samples of several reports, row by row."""
    sums: dict[tuple[str | None, ...], Sample] = {}
    for row in (row for rows in reports for row in rows):
        key = (row.side, row.context, row.event, row.kind, row.category, row.symbol, row.tie)
        if key not in sums:
            sums[key] = structs.replace(row)
            continue
        total = sums[key]
        total.samples += row.samples
        total.weight += row.weight
        total.weight_squared += row.weight_squared
    return list(sums.values())

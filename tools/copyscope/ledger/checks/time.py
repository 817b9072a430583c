# SPDX-License-Identifier: GPL-2.0-only
"""Checks of CPU time against clocks, against the capacity of the CPUs, and against bytes. Pure.

All checks of time share one tolerance, time_tolerance() in ledger/tolerance.py.

The bytes of a copy are counted and its time is sampled, so bytes and time check each other. Bytes contradict
time if even the fastest core would need more time to copy them than was sampled. Time contradicts bytes if an
account has samples but no bytes, although the program did move bytes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from copyscope.base import stats
from copyscope.ledger.attribution import (
    COPY_SAMPLES_MIN,
    RowKey,
    SideTime,
    Weights,
    clocked_weight,
    counters_of,
    cpu_time,
    excludes_softirq,
    side_weights,
    time_event_names,
    why_no_cpu_time,
)
from copyscope.ledger.checks import (
    MISSING_IN_GUESTS,
    TICK_NS,
    bounds_ns,
    compare,
    keys_where,
    overstated_ns,
    sampled_ns,
    unchecked,
    understated_ns,
)
from copyscope.ledger.checks.target import bytes_in_transit, largest_call
from copyscope.ledger.flows import FASTEST_COPY_BYTES_PER_NS, uses_ktls
from copyscope.ledger.tolerance import SWITCH_NS, VALIDITY_LEVEL, chance_of_samples, time_tolerance
from copyscope.record.derived import AccountRow, Identity, Sides, Spent, StageRow
from copyscope.record.measured import Measured
from copyscope.record.segments import machine_of, machines, select, wall_ns
from copyscope.record.watched import volume
from copyscope.taxonomy.accounts import ACCOUNTS
from copyscope.taxonomy.events import EVENT_COLUMNS, event_name, measures_time


def time_checks(
    raw: Measured,
    times: Mapping[str, SideTime],
    sides: Sides,
    rows: Sequence[AccountRow | StageRow],
    gather_ns: float | None,
) -> list[Identity]:
    """Return all checks of CPU time.

    times: CPU time by side, as the samples divide it
    sides: CPU time of each side, as recorded
    rows: all rows of the ledger and of the stages
    gather_ns: time of the gather copy, as measured by its timer; 0 if the strategy has no such copy; None if
        not timed
    """
    spent: dict[str, Spent] = {**sides.processes(), "other": sides.other, "elsewhere": sides.elsewhere}
    first_side = raw.run.sides[0]
    checks = []
    for side in raw.run.sides:
        side_rows = [row for row in rows if row.side == side]
        checks += [
            sampled_time(raw, side, times[side]),
            rows_sum(raw, side, times[side], side_rows, gather_ns if side == first_side else None),
            attributed(side, times[side], side_rows),
        ]
    checks += [] if gather_ns == 0 else [gather_fits(times[first_side], gather_ns)]
    accounts = [row for row in rows if isinstance(row, AccountRow)]
    return [*checks, within_cpus(raw, times, spent), copy_rows(raw, times, accounts)]


# Comparison of samples with clocks and counters.


@dataclass(frozen=True)
class ClockReading:
    """Samples of a side, and the clock or counter that the samples are compared with.

    sampled, counted: amounts according to the samples, and to the clock or counter, in `unit`
    clock: name of the clock or counter
    running: fraction (0..1) of the time in which the counter was counting: perf multiplexes counters
    """

    sampled: float
    counted: float | None
    unit: str
    clock: str
    running: float = 1.0


def sampled_time(raw: Measured, side: str, time: SideTime) -> Identity:
    """Compare samples x period with the CPU clock, or sampled cycles with the cycle counter."""
    name = f"{side}_time"
    if time.event is None:
        return unchecked(name, f"{side}: samples x period = CPU time", "ns", time.reason or "not sampled")
    weights = _compared_weights(raw, side, time)
    reading = _reading(raw, side, time, weights)
    claim, counted = f"{side}: samples x period = {reading.clock}", reading.counted
    reason = f"{time.event}: sampled, but not counted" if counted is None else why_no_cpu_time(raw, side)
    if counted is None or reason is not None:
        return unchecked(name, claim, reading.unit, reason or "not counted")
    period_ns = 1e9 / raw.sampler.frequency_hz
    weight = weights.all_weight / weights.effective_samples if weights.all_samples else period_ns
    chance = chance_of_samples(weights.effective_samples, weight, counted)
    tolerance = round(_tolerance(raw, side, reading, counted, chance))
    return compare(name, claim, round(reading.sampled), round(counted), reading.unit, tolerance=tolerance)


def _compared_weights(raw: Measured, side: str, time: SideTime) -> Weights:
    """Return the samples of a side that can be compared with a clock or counter.

    If the duration of a ref-cycle is unknown, cycles were sampled in addition to ref-cycles.

    time: CPU time of the side
    """
    if time.event != "ref-cycles" or _weighs_time(raw, time):
        return time.weights
    return side_weights(raw.samples, side, EVENT_COLUMNS["cycles"])


def _weighs_time(raw: Measured, time: SideTime) -> bool:
    """Return True if the weights of a side's samples are nanoseconds, not cycles."""
    units = {event.name: event.unit for event in raw.sampler.events}
    return time.event not in ("cycles", "ref-cycles") or measures_time(time.event, units)


def _reading(raw: Measured, side: str, time: SideTime, weights: Weights) -> ClockReading:
    """Return the samples of a side together with its CPU clock or its cycle counter.

    time: CPU time of the side
    weights: result of _compared_weights()
    """
    if _weighs_time(raw, time):
        spent = cpu_time(raw, side)
        clock = f"{spent.source}, without softirq" if excludes_softirq(raw, side) else spent.source
        return ClockReading(clocked_weight(time.weights, raw, side), float(spent.ns), "ns", clock)
    # The counter includes softirq work in the process's time, even if the CPU clock excludes it.
    cycles = {event_name(name): counter for name, counter in counters_of(raw, side).items()}.get("cycles")
    if cycles is None or (time.event == "ref-cycles" and not weights.all_samples):
        return ClockReading(weights.all_weight, None, "cycles", "cycle counter")
    running = 1.0 if cycles.running is None else cycles.running
    return ClockReading(weights.all_weight, cycles.value, "cycles", "cycle counter", running)


def _tolerance(raw: Measured, side: str, reading: ClockReading, counted: float, chance: float) -> float:
    """Return the maximum difference between the samples of a side and its clock or counter, in their unit.

    counted: amount according to the clock or counter
    chance: half of the interval of the samples' amount
    """
    larger = max(reading.sampled, counted)
    if reading.unit == "cycles":
        return time_tolerance(larger, chance, clock_error=(1.0 - reading.running) * counted)
    spent = cpu_time(raw, side)
    switched_ns = spent.departures * SWITCH_NS
    if reading.sampled > counted:
        return time_tolerance(larger, chance, clock_error=switched_ns + unread_at_exit_ns(raw, side))
    # Stolen time shows a hypervisor even if its name is unknown.
    is_guest = machine_of(raw, side).hypervisor or raw.machine_state.steal_ns
    missing_ns = MISSING_IN_GUESTS * counted if is_guest else 0.0
    return time_tolerance(larger, chance, clock_error=switched_ns + spent.waited_ns, missing=missing_ns)


def unread_at_exit_ns(raw: Measured, side: str) -> int:
    """Return the upper bound of CPU time that was not read because processes exited first."""
    if raw.target is None or cpu_time(raw, side).source != "CPU clock":
        return 0
    return raw.watched.exits * TICK_NS


def within_cpus(raw: Measured, times: Mapping[str, SideTime], spent: Mapping[str, Spent]) -> Identity:
    """Compare the CPU time of all sides with the capacity of the CPUs, which is the upper bound of that time.

    No clock measures softirq work charged to other tasks, so the tolerance includes its sampling error.

    spent: CPU time by side, including `other` and `elsewhere`
    """
    name, claim = "within_cpus", "CPU time of all sides = the part of it within CPUs x wall time"
    known_ns = {side: row.cpu_ns for side, row in spent.items() if row.cpu_ns is not None}
    if "elsewhere" not in known_ns:
        return unchecked(name, claim, "ns", times["other"].reason or "nothing was sampled")
    spent_ns = sum(known_ns.values())
    cpus = sum(machine.cpus_online for machine in machines(raw))
    capacity_ns = cpus * wall_ns(select(raw.run.segments, "ledger"))
    chance_ns = _softirq_chance_ns(spent, known_ns) + sum(
        overstated_ns(times[side], keys_where(times[side], lambda key: key.context == "softirq"))
        for side in raw.run.sides
        if excludes_softirq(raw, side) and times[side].scale_ns is not None
    )
    waited_ns = sum(cpu_time(raw, side).waited_ns for side in raw.run.sides)
    tolerance = round(time_tolerance(max(spent_ns, capacity_ns), chance_ns, clock_error=waited_ns))
    return compare(name, claim, spent_ns, min(spent_ns, capacity_ns), "ns", tolerance=tolerance)


def _softirq_chance_ns(spent: Mapping[str, Spent], known_ns: Mapping[str, float]) -> float:
    """Return the CPU time in ns by which softirq work charged to other tasks may be overstated, by chance."""
    sides = [side for side in ("other", "elsewhere") if side in known_ns]
    samples = sum(spent[side].samples or 0 for side in sides)
    if not samples:
        return 0.0
    low = stats.poisson(samples, VALIDITY_LEVEL).low
    return sum(known_ns[side] for side in sides) * (1 - low / samples)


# Checks of the rows of a side against its CPU time.


def rows_sum(
    raw: Measured,
    side: str,
    time: SideTime,
    rows: Sequence[AccountRow | StageRow],
    gather_ns: float | None,
) -> Identity:
    """Compare the sum of all printed rows of a side with its CPU time.

    The rows divide one number, so only rounding is tolerated: one nanosecond per row. The gather copy is the
    exception. Its time is measured by a timer, and subtracted from the sampled user time, down to zero. So
    the rows may exceed the CPU time by as much as that copy may exceed the user time (gather_fits()).
    """
    name, claim = f"{side}_rows", f"{side}: accounts + stages + unattributed = CPU time"
    known_ns = [row.cpu_ns for row in rows if row.cpu_ns is not None]
    if time.cpu_ns is None or len(known_ns) < len(rows):
        unknown_rows = ", ".join(row.category for row in rows if row.cpu_ns is None)
        return unchecked(name, claim, "ns", time.reason or f"{unknown_rows}: time not known")
    softirq_weight = time.weights.all_weight - clocked_weight(time.weights, raw, side)
    cpu_ns = cpu_time(raw, side).ns + softirq_weight * (time.scale_ns or 0.0)
    tolerance = round(len(rows) + _gather_excess_ns(time, gather_ns))
    return compare(name, claim, sum(known_ns), round(cpu_ns), "ns", tolerance=tolerance)


def _gather_excess_ns(time: SideTime, gather_ns: float | None) -> float:
    """Return the time in ns by which the gather copy exceeds the sampled user time, up to the tolerance."""
    if not gather_ns or not time.weights.all_samples:
        return 0.0
    excess_ns = gather_ns - sampled_ns(time, _user_keys(time))
    return min(max(0.0, excess_ns), _gather_tolerance(time, gather_ns))


def _gather_tolerance(time: SideTime, gather_ns: float) -> float:
    return time_tolerance(gather_ns, understated_ns(time, _user_keys(time)))


def _user_keys(time: SideTime) -> list[RowKey]:
    return keys_where(time, lambda key: key.category == "user")


def gather_fits(time: SideTime, gather_ns: float | None) -> Identity:
    """Compare the time of the gather copy with the sampled user time, which includes the copy.

    time: CPU time of the sender
    gather_ns: time of the copy, as measured by its timer; None if not timed
    """
    name, claim = "gather_fits", "gather copy by its timer = the part of it within the sampled user time"
    if gather_ns is None:
        return unchecked(name, claim, "ns", "no message was timed")
    if time.cpu_ns is None or not time.weights.all_samples:
        return unchecked(name, claim, "ns", time.reason or "not sampled")
    within_ns = round(min(gather_ns, sampled_ns(time, _user_keys(time))))
    tolerance = round(_gather_tolerance(time, gather_ns))
    return compare(name, claim, round(gather_ns), within_ns, "ns", tolerance=tolerance)


def attributed(side: str, time: SideTime, rows: Sequence[AccountRow | StageRow]) -> Identity:
    """Return the check that almost no CPU time of a side is in functions without a taxonomy rule."""
    name, claim = f"{side}_attributed", f"{side}: share without a name is 0, give or take 0.05"
    if not time.cpu_ns:
        return unchecked(name, claim, "share", time.reason or "no CPU time was sampled")
    unnamed_rows = [row for row in rows if isinstance(row, StageRow) and row.stage == "unattributed"]
    share = sum(row.cpu_ns or 0 for row in unnamed_rows) / time.cpu_ns
    keys = keys_where(time, lambda key: key.category == "unattributed")
    tolerance = time_tolerance(1.0, overstated_ns(time, keys) / time.cpu_ns)
    return compare(name, claim, round(share, 6), 0, "share", tolerance=round(tolerance, 6))


# Checks of the bytes of copies against the time of copies.

# Account -> (direction of its bytes, total of bytes in transit at both ends of a segment).
TAKE_TIME = {"copy_in": ("send", "sent"), "deferred": ("send", "sent"), "copy_out": ("receive", "received")}
# Accounts whose copies run in softirqs, in the time of any task. Copies of every other account run in the
# call.
IN_SOFTIRQ = ("deferred",)
# Account -> accounts that move bytes in the same direction. Only time in calls is compared with bytes,
# because softirq work in the time of a process may be for other programs' packets.
MOVE_BYTES = {"copy_in": ("copy_in", "pin"), "pin": ("copy_in", "pin"), "copy_out": ("copy_out", "mapped")}
CIPHER = "kTLS encrypts whole records in place: bytes of such records pass without the copy that is counted"


def copy_rows(raw: Measured, times: Mapping[str, SideTime], rows: Sequence[AccountRow]) -> Identity:
    """Count the accounts whose bytes and time contradict each other, and name them in the claim."""
    name, claim = "copy_rows", "copies whose bytes and time contradict each other = none"
    reason = _why_not_comparable(raw, times)
    if reason:
        return unchecked(name, claim, "accounts", reason)
    account_bytes: dict[str, int] = {}
    for row in rows:
        if row.bytes is not None:
            account_bytes[row.account] = account_bytes.get(row.account, 0) + row.bytes
    contradictions = [
        *_bytes_without_time(raw, times, account_bytes),
        *_time_without_bytes(raw, times, account_bytes),
    ]
    details = f" ({'; '.join(contradictions)})" if contradictions else ""
    return compare(name, claim + details, len(contradictions), 0, "accounts")


def _why_not_comparable(raw: Measured, times: Mapping[str, SideTime]) -> str | None:
    """Return why bytes and time of copies cannot be compared, or None if they can."""
    if uses_ktls(raw) or any(row.category == "encrypt" for row in raw.samples):
        return CIPHER
    unknown_sides = (side for side in raw.run.sides if not times[side].cpu_ns)
    return next((times[side].reason or f"{side}: no CPU time was sampled" for side in unknown_sides), None)


def _bytes_without_time(
    raw: Measured, times: Mapping[str, SideTime], account_bytes: Mapping[str, int]
) -> Iterator[str]:
    """Yield a description of each account whose bytes would take longer to copy than its sampled time.

    times: CPU time by side
    account_bytes: account -> bytes
    """
    for account, (direction, done) in TAKE_TIME.items():
        copied_bytes = account_bytes.get(account, 0)
        if raw.target is not None:
            call_bytes = largest_call(volume(raw.volume, direction, "ledger"))
            copied_bytes -= bytes_in_transit(select(raw.run.segments, "ledger"), done, call_bytes)
        least_ns, most_ns = copied_bytes / FASTEST_COPY_BYTES_PER_NS, _most_ns(raw, times, account)
        # The upper bound `most_ns` already allows for chance.
        if least_ns - most_ns > time_tolerance(max(least_ns, most_ns), chance=0.0):
            yield f"{account}: {account_bytes[account]:,} bytes in at most {most_ns / 1e6:.1f} ms"


def _most_ns(raw: Measured, times: Mapping[str, SideTime], account: str) -> float:
    """Return the upper bound of an account's CPU time on all sides, including time in nameless functions."""
    categories = (account, "unattributed")
    most_ns = sum(
        bounds_ns(times[side], keys_where(times[side], lambda key: key.category in categories)).high
        for side in raw.run.sides
    )
    return most_ns + (_softirq_most_ns(raw, categories) if account in IN_SOFTIRQ else 0.0)


def _softirq_most_ns(raw: Measured, categories: Sequence[str]) -> float:
    """Return the upper bound of softirq work charged to other tasks, for packets of any program."""
    events = time_event_names(raw) or ()
    samples = sum(
        row.samples
        for row in raw.samples
        if row.side == "other" and row.category in categories and event_name(row.event) in events
    )
    return stats.poisson(samples, VALIDITY_LEVEL).high * 1e9 / raw.sampler.frequency_hz


def _time_without_bytes(
    raw: Measured, times: Mapping[str, SideTime], account_bytes: Mapping[str, int]
) -> Iterator[str]:
    """Yield a description of each account that has time but no bytes, although its direction moved bytes.

    times: CPU time by side
    account_bytes: account -> bytes
    """
    if raw.target is not None and raw.watched.uncounted:
        return  # The time may belong to sockets whose bytes are not counted.
    for account, accounts_of_direction in MOVE_BYTES.items():
        if account_bytes.get(account) != 0:
            continue
        if not any(account_bytes.get(other) for other in accounts_of_direction):
            continue
        key = RowKey("account", account, "process")
        for side in raw.run.sides:
            if _is_certain(times[side], key, is_home=side in ("target", ACCOUNTS[account].side)):
                yield f"{account}: no bytes, but {times[side].weights.samples[key]:,} samples of the {side}"


def _is_certain(time: SideTime, key: RowKey, *, is_home: bool) -> bool:
    """Return True if the samples of a row without bytes prove that the row must have bytes.

    A copy of 0 bytes takes no time, so a few samples prove a copy, however small their share is. Page pinning
    has causes other than sends, and the other end of our own traffic may copy a few bytes that no row counts:
    such rows must take a larger share of the CPU time than the tolerance.

    time: CPU time of the side
    is_home: True for the side whose bytes the account counts
    """
    if is_home and ACCOUNTS[key.category].is_copy:
        return time.weights.samples.get(key, 0) >= COPY_SAMPLES_MIN
    tolerance_ns = time_tolerance(time.cpu_ns or 0.0, overstated_ns(time, [key]))
    return sampled_ns(time, [key]) > tolerance_ns

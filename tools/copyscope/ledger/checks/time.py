"""Checks of time: samples against the CPU clock, rows against their side, copies against their bytes. Pure.

Bytes of a copy are counted and its time is sampled, so each is a check on the other. Bytes contradict it
where the samples leave their account less time than the fastest core takes for so many; time does where much
of it lies in functions of an account that moved nothing, while the program did move bytes.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from copyscope import stats
from copyscope.ledger.attribution import (
    Key,
    SideTime,
    Weights,
    clocked,
    counters_of,
    cpu_time,
    excludes_softirq,
    share_of,
    time_event,
    weights_of,
    why_no_time,
)
from copyscope.ledger.checks.balance import VALIDITY_LEVEL, compare, unchecked
from copyscope.ledger.checks.target import edges, largest
from copyscope.ledger.flows import FASTEST_COPY_BYTES_PER_NS, encrypts
from copyscope.record.derived import AccountRow, Identity, Sides, Spent, StageRow
from copyscope.record.instruments import Counter
from copyscope.record.measured import Measured
from copyscope.record.segments import machine_of, machines, select, wall_ns
from copyscope.record.watched import volume
from copyscope.taxonomy.events import EVENT_COLUMNS, event_name, in_time

# beyond chance: start and end of a segment, clock ticks that virtual machines lose
SAMPLING_TOLERANCE = 0.03
ROUNDING_TOLERANCE = 0.001
MOST_UNATTRIBUTED = 0.05
# A timer that expires while a task is switched out is charged to the next task, or to idle.
SWITCH_NS = 2_000
# In a virtual machine a timer is the hypervisor's. Some come late on a CPU that has slept, and what ran until
# then has no sample: senders and receivers were seen for 0.6 to 1.0 of their time (decision 009).
UNSEEN_IN_GUESTS = 0.5
# The CPU clock begins when a wake-up is queued (cpu_time()): so much too early in some virtual machines.
LATE_WAKE_NS = 10_000
# Of a process that ends less than a tick is missed where perf does not count (process_ns(), bpf/watch.bpf.c).
MISSED_AT_END_NS = 10_000_000
# The clocks of a segment are read one after the other, by asking other processes.
EDGE_NS = 5_000_000


def time_identities(
    raw: Measured,
    times: Mapping[str, SideTime],
    sides: Sides,
    rows: Sequence[AccountRow | StageRow],
    gather_ns: float | None,
) -> list[Identity]:
    """All checks of time; rows: those of the ledger and the stages."""
    spent: dict[str, Spent] = {**sides.processes(), "other": sides.other, "elsewhere": sides.elsewhere}
    found = []
    first = raw.run.sides[0]
    for side in raw.run.sides:
        of_side = [row for row in rows if row.side == side]
        found += [
            sampled_time(raw, side, times[side]),
            rows_sum(raw, side, times[side], of_side, gather_ns if side == first else None),
            attributed(side, times[side], of_side),
        ]
    fits = gather_fits(times[first], gather_ns)
    accounts = [row for row in rows if isinstance(row, AccountRow)]
    found += [] if fits is None else [fits]
    return [*found, within_cpus(raw, times, spent), copy_rows(raw, times, accounts)]


def within_cpus(raw: Measured, times: Mapping[str, SideTime], spent: Mapping[str, Spent]) -> Identity:
    """All sides together, with the softirq work that is not known to be of this run, fit in the CPUs' time.

    The tolerance: of softirq work, which has no clock but samples, what is above the lower end of its 99.9 %
    interval; of each process the wake-ups that its CPU clock bills while it does not run yet; the time
    between the readings at both ends of a segment; and 3 %. A side whose time is not known adds nothing.
    """
    name, what = "within_cpus", "CPU time of all sides = the part of it within CPUs x wall time"
    known = {side: row.cpu_ns for side, row in spent.items() if row.cpu_ns is not None}
    if "elsewhere" not in known:
        return unchecked(name, what, "ns", times["other"].reason or "nothing was sampled")
    spent_ns = sum(known.values())
    segments = select(raw.run.segments, "ledger")
    cpus = sum(machine.cpus_online for machine in machines(raw))
    capacity = cpus * wall_ns(segments)
    tolerance = SAMPLING_TOLERANCE * capacity + cpus * len(segments) * EDGE_NS
    beside = [side for side in ("other", "elsewhere") if side in known]
    samples = sum(spent[side].samples or 0 for side in beside)
    if samples:
        low = stats.poisson(samples, VALIDITY_LEVEL).low
        tolerance += sum(known[side] for side in beside) * (1 - low / samples)
    for side in raw.run.sides:
        spent_by = cpu_time(raw, side)
        if spent_by.source == "CPU clock":
            tolerance += spent_by.switches * LATE_WAKE_NS
        if excludes_softirq(raw, side) and times[side].scale_ns is not None:
            tolerance += _softirq_above(times[side])
    return compare(name, what, spent_ns, min(spent_ns, capacity), "ns", tolerance=round(tolerance))


def sampled_time(raw: Measured, side: str, time: SideTime) -> Identity:
    """Samples x period against an exact reading: a CPU clock in ns, or the cycle counter. Where nothing says
    how long a ref-cycle is, cycles are sampled beside them, and checked.

    The tolerance is the 99.9 % interval of a count of that size, plus 3 %, plus what the kernel does at each
    switch with interrupts off, plus the wake-ups that a CPU clock bills, plus what the hypervisor stole, plus
    what a watched program's processes used after the last look before they ended; for the cycle counter plus
    what it did not see where it took turns with others. Samples that are missing in a virtual machine are
    said on the first screen, and break the check from half of the time on.
    """
    name = f"{side}_time"
    if time.event is None:
        what = f"{side}: samples x period = CPU time"
        return unchecked(name, what, "ns", time.reason or "not sampled")
    weights = _checked_weights(raw, side, time)
    exact, seen, unit, clock = _readings(raw, side, time, weights)
    what = f"{side}: samples x period = {clock}"
    unknown = f"{time.event}: sampled, but not counted" if exact is None else why_no_time(raw, side)
    if exact is None or unknown is not None:
        return unchecked(name, what, unit, unknown or "not counted")
    # with few samples their own number says little: what the clock expects counts as well
    weight = weights.all_weight / weights.effective_samples if weights.all_samples else period_ns(raw)
    expected = max(weights.effective_samples, exact / weight)
    tolerance = stats.normal_quantile(VALIDITY_LEVEL) * weight * math.sqrt(expected)
    tolerance += SAMPLING_TOLERANCE * exact
    if unit == "ns":
        spent = cpu_time(raw, side)
        tolerance += spent.departures * SWITCH_NS + stolen_share(raw) * exact
        tolerance += spent.switches * LATE_WAKE_NS if spent.source == "CPU clock" else 0
        tolerance += missed_at_ends_ns(raw, side) if seen > exact else 0
    else:
        # A counter that took turns with others (perf multiplexes) did not run all the time.
        cycles = cycles_of(raw, side)
        tolerance += 0.0 if cycles is None or cycles.running is None else (1.0 - cycles.running) * exact
    if seen < exact and unit == "ns" and machine_of(raw, side).hypervisor:
        tolerance = max(tolerance, UNSEEN_IN_GUESTS * exact)
    return compare(name, what, round(seen), round(exact), unit, tolerance=round(tolerance))


def missed_at_ends_ns(raw: Measured, side: str) -> int:
    """CPU time that the clocks of processes that ended may not have had yet at the last look, at most."""
    if raw.target is None or cpu_time(raw, side).source != "CPU clock":
        return 0
    return raw.watched.exits * MISSED_AT_END_NS


def period_ns(raw: Measured) -> float:
    """What one sample of a timer stands for."""
    return 1e9 / raw.sampler.frequency_hz


def stolen_share(raw: Measured) -> float:
    """The part of the CPUs' time that the hypervisor took while they had work.

    A clock goes on meanwhile. The timer fires once when the CPU comes back, however many periods have passed:
    hrtimer_forward_now() in perf_swevent_hrtimer(), kernel/events/core.c.
    """
    load = raw.machine_state
    if not load.steal_ns or load.busy_ns is None:
        return 0.0
    return load.steal_ns / (load.steal_ns + load.busy_ns)


def cycles_of(raw: Measured, side: str) -> Counter | None:
    """The cycle counter of a side."""
    return {event_name(n): c for n, c in counters_of(raw, side).items()}.get("cycles")


def _checked_weights(raw: Measured, side: str, time: SideTime) -> Weights:
    """The samples of a side that an exact reading can be held against."""
    if time.event != "ref-cycles" or _is_in_time(raw, time):
        return time.weights
    return weights_of(raw.samples, side, EVENT_COLUMNS["cycles"])


def _is_in_time(raw: Measured, time: SideTime) -> bool:
    units = {event.name: event.unit for event in raw.sampler.events}
    return time.event not in ("cycles", "ref-cycles") or in_time(time.event, units)


def _readings(
    raw: Measured, side: str, time: SideTime, weights: Weights
) -> tuple[float | None, float, str, str]:
    """(exact, seen, unit, which clock) of a side."""
    if not _is_in_time(raw, time):
        # the counter counts whatever ran on top of the process, softirq too, whatever the CPU clock says
        cycles = cycles_of(raw, side)
        exact = cycles.value if cycles and (time.event == "cycles" or weights.all_samples) else None
        return exact, weights.all_weight, "cycles", "cycle counter"
    spent = cpu_time(raw, side)
    clock = spent.source + (", without softirq" if excludes_softirq(raw, side) else "")
    return float(spent.ns), clocked(time.weights, raw, side), "ns", clock


def rows_sum(
    raw: Measured,
    side: str,
    time: SideTime,
    rows: Sequence[AccountRow | StageRow],
    gather_ns: float | None,
) -> Identity:
    """Accounts + stages + unattributed, as they are printed, against the CPU time of the side.

    One thing may make the rows too many: the gather copy has a timer, the user time that it is taken from is
    sampled, and no row is less than nothing. That much, as far as it is within what chance does to such a
    share (gather_fits), is in the tolerance. Nothing makes them too few.
    """
    name, what = f"{side}_rows", f"{side}: accounts + stages + unattributed = CPU time"
    known_ns = [row.cpu_ns for row in rows if row.cpu_ns is not None]
    if time.cpu_ns is None or len(known_ns) < len(rows):
        unknown = (row for row in rows if row.cpu_ns is None)
        names = ", ".join(row.account if isinstance(row, AccountRow) else row.stage for row in unknown)
        return unchecked(name, what, "ns", time.reason or f"{names}: time not known")
    exact = cpu_time(raw, side).ns
    softirq_ns = (time.weights.all_weight - clocked(time.weights, raw, side)) * (time.scale_ns or 0.0)
    known = exact + softirq_ns
    # one rounded nanosecond per row
    tolerance = ROUNDING_TOLERANCE * known + len(rows) + _gather_excess(time, gather_ns)
    return compare(name, what, sum(known_ns), round(known), "ns", tolerance=round(tolerance))


def _gather_excess(time: SideTime, gather_ns: float | None) -> float:
    """By how much the gather timer says more than the sampled user time, up to what chance allows it to."""
    if not gather_ns or not time.weights.all_samples:
        return 0.0
    _, user_ns = _user(time)
    allowed = _most_user_ns(time) - user_ns + SAMPLING_TOLERANCE * gather_ns
    return min(max(0.0, gather_ns - user_ns), allowed)


def _softirq_above(time: SideTime) -> float:
    """By how much the softirq time on top of a side, which its clock leaves out, may be less than sampled."""
    softirqs = _keys(time, lambda key: key[2] == "softirq")
    samples, ns = _part(time, softirqs)
    if not samples:
        return 0.0
    return ns - share_of(time, softirqs, VALIDITY_LEVEL).low * (time.cpu_ns or 0.0)


def _keys(time: SideTime, wanted: Callable[[Key], bool]) -> list[Key]:
    return list(filter(wanted, time.weights.samples))


def _part(time: SideTime, keys: Sequence[Key]) -> tuple[int, float]:
    """Samples of some rows of a side, and the CPU time that they stand for."""
    weight = sum(time.weights.weight[key] for key in keys)
    return sum(time.weights.samples[key] for key in keys), weight * (time.scale_ns or 0.0)


def _user(time: SideTime) -> tuple[int, float]:
    return _part(time, _user_keys(time))


def _user_keys(time: SideTime) -> list[Key]:
    return _keys(time, lambda key: key[1] == "user")


def _most_user_ns(time: SideTime) -> float:
    """Upper end of the interval (Wilson, 99.9 %) of the time in user mode."""
    share = share_of(time, _user_keys(time), VALIDITY_LEVEL).high
    return share * (time.cpu_ns or 0.0)


def attributed(side: str, time: SideTime, rows: Sequence[AccountRow | StageRow]) -> Identity:
    """Not more than 5 % of a side's time may be without a name, and what chance adds to few samples."""
    name, what = f"{side}_attributed", f"{side}: share without a name is 0, give or take 0.05"
    if not time.cpu_ns:
        return unchecked(name, what, "share", time.reason or "no CPU time was sampled")
    nameless = [row for row in rows if isinstance(row, StageRow) and row.stage == "unattributed"]
    share = sum(row.cpu_ns or 0 for row in nameless) / time.cpu_ns
    keys = _keys(time, lambda key: key[1] == "unattributed")
    hits, _ = _part(time, keys)
    chance = share - share_of(time, keys, VALIDITY_LEVEL).low if hits else 0.0
    return compare(name, what, round(share, 6), 0, "share", tolerance=round(MOST_UNATTRIBUTED + chance, 6))


def gather_fits(time: SideTime, gather_ns: float | None) -> Identity | None:
    """The gather copy runs in user mode: the timer cannot say more than all of the sampled user time.

    None for a strategy without a gather copy.
    """
    name, what = "gather_fits", "gather copy by its timer = the part of it within the sampled user time"
    if gather_ns == 0:
        return None
    if gather_ns is None:
        return unchecked(name, what, "ns", "no message was timed")
    if time.cpu_ns is None or not time.weights.all_samples:
        return unchecked(name, what, "ns", time.reason or "not sampled")
    within, tolerance = round(min(gather_ns, _most_user_ns(time))), round(SAMPLING_TOLERANCE * gather_ns)
    return compare(name, what, round(gather_ns), within, "ns", tolerance=tolerance)


NAME, WHAT = "copy_rows", "copies whose bytes and time exclude each other = none"
# account -> what counts what is under way at the edges of a segment
TAKE_TIME = {"copy_in": ("send", "sent"), "deferred": ("send", "sent"), "copy_out": ("receive", "received")}
# Copied in softirqs, which run on anybody's time; the others are copied by the call.
ELSEWHERE = ("deferred",)
# Softirq work on the time of a process is for the packets of anybody, so only what is done in a call counts.
MOVE_BYTES = {"copy_in": ("copy_in", "pin"), "pin": ("copy_in", "pin"), "copy_out": ("copy_out", "mapped")}
# So much time may lie in the same functions for something else: files, pages for a device.
BESIDE_MOST = 0.05
CIPHER = "kTLS encrypts whole records from where they are: their bytes pass without the copy that is counted"


def copy_rows(raw: Measured, times: Mapping[str, SideTime], rows: Sequence[AccountRow]) -> Identity:
    """How many accounts contradict themselves, by name."""
    unknown = _why_unknown(raw, times)
    if unknown:
        return unchecked(NAME, WHAT, "accounts", unknown)
    moved: dict[str, int] = {}
    for row in rows:
        if row.bytes is not None:
            moved[row.account] = moved.get(row.account, 0) + row.bytes
    found = [*_without_time(raw, times, moved), *_without_bytes(raw, times, moved)]
    named = f" ({'; '.join(found)})" if found else ""
    return compare(NAME, WHAT + named, len(found), 0, "accounts")


def _why_unknown(raw: Measured, times: Mapping[str, SideTime]) -> str | None:
    """Why it cannot be checked."""
    seen = any(row.category == "encrypt" for row in raw.samples)
    if seen or encrypts(raw):
        return CIPHER
    unknown = (side for side in raw.run.sides if not times[side].cpu_ns)
    return next((times[side].reason or f"{side}: no CPU time was sampled" for side in unknown), None)


def _without_time(raw: Measured, times: Mapping[str, SideTime], moved: Mapping[str, int]) -> list[str]:
    found = []
    for account, (direction, done) in TAKE_TIME.items():
        known = moved.get(account, 0)
        if raw.target is not None:
            of_direction = volume(raw.volume, direction, "ledger")
            known -= edges(select(raw.run.segments, "ledger"), done, largest(of_direction))
        if known <= 0:
            continue
        most_ns = _most_ns(raw, times, account)
        if known > most_ns * FASTEST_COPY_BYTES_PER_NS:
            found.append(f"{account}: {moved[account]:,} bytes in at most {most_ns / 1e6:.1f} ms")
    return found


def _without_bytes(raw: Measured, times: Mapping[str, SideTime], moved: Mapping[str, int]) -> list[str]:
    found = []
    for account, direction in MOVE_BYTES.items():
        if moved.get(account) != 0 or not any(moved.get(other) for other in direction) or _has_uncounted(raw):
            continue
        for side in raw.run.sides:
            key = ("account", account, "process")
            samples = times[side].weights.samples.get(key, 0)
            if samples and share_of(times[side], [key], VALIDITY_LEVEL).low > BESIDE_MOST:
                found.append(f"{account}: no byte, but {samples:,} samples of the {side}")
    return found


def _has_uncounted(raw: Measured) -> bool:
    """Whether it had sockets whose bytes are not counted."""
    return raw.target is not None and bool(raw.watched.uncounted)


def _most_ns(raw: Measured, times: Mapping[str, SideTime], account: str) -> float:
    """The time of an account on all sides, at most: what has no name may belong to it."""
    categories = (account, "unattributed")
    found = 0.0
    for side in raw.run.sides:
        keys = [key for key in times[side].weights.samples if key[1] in categories]
        found += share_of(times[side], keys, VALIDITY_LEVEL).high * (times[side].cpu_ns or 0.0)
    return found + (_beside_ns(raw, categories) if account in ELSEWHERE else 0.0)


def _beside_ns(raw: Measured, categories: Sequence[str]) -> float:
    """Of softirq work on the time of others, whosever it is."""
    names = time_event(raw.samples, raw.sampler.events) or ()
    beside = sum(
        row.samples
        for row in raw.samples
        if row.side == "other" and row.category in categories and event_name(row.event) in names
    )
    return stats.poisson(beside, VALIDITY_LEVEL).high * 1e9 / raw.sampler.frequency_hz

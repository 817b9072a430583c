"""Identities of time: the sampler against the CPU clock, and the rows of a side against its CPU time."""

import math
from collections.abc import Callable, Mapping, Sequence

from copyscope import stats
from copyscope.ledger.attribution import (
    Key,
    SideTime,
    burst_of,
    clocked,
    share_of,
    time_event,
    weights_of,
)
from copyscope.ledger.cpu_time import CpuTime, counters_of, cpu_time, excludes_softirq, why_no_time
from copyscope.ledger.identities.balance import compare, unchecked
from copyscope.record import derived
from copyscope.record.derived import AccountRow, Elsewhere, Identity, OtherSide, StageRow
from copyscope.record.instruments import Burst, Counter, Sampler
from copyscope.record.program.raw import RawProgramRun
from copyscope.record.raw import Measured
from copyscope.record.segments import machines, processes, select, total, wall_ns
from copyscope.taxonomy.events import event_name

# beyond chance: start and end of a segment, clock ticks that virtual machines lose
SAMPLING_TOLERANCE = 0.03
ROUNDING_TOLERANCE = 0.001
# A broken identity makes a run worthless, so chance alone must not break one: once in a thousand.
VALIDITY_LEVEL = 0.999
MOST_UNATTRIBUTED = 0.05
Spent = derived.SideTime | OtherSide | Elsewhere
# A context switch runs with interrupts off; a timer that expires in it is charged to the next task.
SWITCH_NS = 2_000
# The CPU clock begins when a wake-up is queued (cpu_time.py): so much too early in some virtual machines.
LATE_WAKE_NS = 10_000
# The clocks of a segment are read one after the other, by asking other processes.
EDGE_NS = 5_000_000
# Timer interrupts come up to tens of microseconds late in virtual machines (they wait for the next exit).
SHORT_BURST_NS = 50_000
# Where samples and CPU time are further apart than this part of it, that is not called chance.
CHANCE_MOST = 1 / 3
# A hypervisor takes slices: a moment of what it takes lies in one of this length on average (notes.md).
STOLEN_SLICE_NS = 20_000_000
# Bursts of the sampling timer are what chance deals; from fewer their spread cannot be told.
FEWEST_TIMER_BURSTS = 8


def time_identities(
    raw: Measured,
    times: Mapping[str, SideTime],
    spent: Mapping[str, Spent],
    rows: Sequence[AccountRow | StageRow],
    gather_ns: float | None,
) -> list[Identity]:
    """All identities of time. spent: the derived `sides`; rows: those of the ledger and the stages."""
    found = []
    first = processes(raw)[0]
    for side in processes(raw):
        of_side = [row for row in rows if row.side == side]
        found += [
            sampled_time(raw, side, times[side]),
            rows_sum(raw, side, times[side], of_side, gather_ns if side == first else None),
            attributed(side, times[side], of_side),
        ]
    fits = gather_fits(times[first], gather_ns)
    return [*found, *([] if fits is None else [fits]), within_cpus(raw, times, spent)]


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
        cluster = times["other"].cluster
        low = stats.poisson(samples / cluster, VALIDITY_LEVEL).low
        tolerance += sum(known[side] for side in beside) * (1 - low * cluster / samples)
    for side in processes(raw):
        spent_by = cpu_time(raw, side)
        if spent_by.source == "CPU clock":
            tolerance += spent_by.switches * LATE_WAKE_NS
        if excludes_softirq(raw, side) and times[side].scale_ns is not None:
            tolerance += _softirq_above(times[side])
    return compare(name, what, spent_ns, min(spent_ns, capacity), "ns", tolerance=round(tolerance))


def sampled_time(raw: Measured, side: str, time: SideTime) -> Identity:
    """Samples x period against an exact reading: a CPU clock in ns, or the cycle counter.

    A timer that is armed a part of the time is compared with the CPU time of its side in just that part
    (`bursts.cpu_ns`): beside other programs a side may get more of the CPU in it than on average, or less,
    which is no error of the sampler. Records without that have task-clock or the CPU clock of the whole.

    The tolerance is the 99.9 % interval of a count of that size, or where that is more, of the spread over
    the bursts (apart_ns(), at most a third; of samples, where the whole is compared), plus 3 %, plus what the
    kernel does at each switch with interrupts off, plus what the hypervisor stole; for the cycle counter plus
    what it did not see where it took turns with others. Too few samples of a process that runs for short
    times are not judged, whether it sleeps often or others take the CPU from it: the interrupt of the
    sampling timer comes when it has left. The share that was seen is printed instead (sampled_share).
    """
    name = f"{side}_time"
    if time.event is None:
        what = f"{side}: samples x period = CPU time"
        return unchecked(name, what, "ns", time.reason or "not sampled")
    while_armed = armed_cpu_ns(raw, side)
    exact, seen, unit, clock = _readings(raw, side, time)
    if unit == "ns" and while_armed is not None:
        exact, seen = while_armed, weight_as_sampled(raw, side)
        clock = "CPU time while sampled, scaled alike"
    what = f"{side}: samples x period = {clock}"
    bursts = burst_of(raw.sampler, side)
    unknown = "cycles: sampled, but not counted" if exact is None else why_no_time(raw, side)
    if bursts and while_armed == 0 == seen:
        unknown = unknown or f"it ran in none of {bursts.count} bursts of the timers: run longer"
    if exact is None or unknown is not None:
        return unchecked(name, what, unit, unknown or "not counted")
    spent = cpu_time(raw, side)
    samples = max(1, time.weights.all_samples)
    # with few samples their own number says little: what the clock expects counts as well
    weight = time.weights.all_weight / samples if time.weights.all_samples else _period(raw.sampler, side)
    expected = max(float(samples), exact / weight if weight else 0.0)
    of_one = stats.normal_quantile(VALIDITY_LEVEL) * weight
    if while_armed is None:
        spread = of_one * burst_spread(raw.sampler, side)
    else:
        spread = min(apart_ns(raw, side), CHANCE_MOST * exact)
    tolerance = max(of_one * math.sqrt(expected), spread) + SAMPLING_TOLERANCE * exact
    if unit == "ns":
        tolerance += spent.departures * SWITCH_NS
        stolen_ns = stolen_share(raw) * exact
        tolerance += hidden_at_birth_ns(raw) + stolen_ns
        if while_armed is not None:
            tolerance += stolen_in_bursts_ns(raw, side, stolen_ns)
    else:
        # A counter that took turns with others (perf multiplexes) did not run all the time.
        cycles = cycles_of(raw, side)
        tolerance += 0.0 if cycles is None or cycles.running is None else (1.0 - cycles.running) * exact
    if unit == "ns" and spent.stay_ns < SHORT_BURST_NS and tolerance < abs(seen - exact) <= exact:
        return unchecked(name, what, unit, _short_bursts(spent, seen / exact))
    few = while_armed is None and bursts and bursts.count < FEWEST_TIMER_BURSTS
    if few and bursts and abs(seen - exact) > tolerance:
        why = f"the sampling timer was armed {bursts.count} times only, at random moments: "
        return unchecked(name, what, unit, f"{why}{seen / exact:.0%} of the time was seen; run longer")
    return compare(name, what, round(seen), round(exact), unit, tolerance=round(tolerance))


def armed_cpu_ns(raw: Measured, side: str) -> float | None:
    """CPU time of a side while its timers were armed, scaled as its samples are.

    None where they were armed all the time, which another clock measures, and where nobody read it; and for
    a program without its children: these inherit its timers, and are in what the timers measured.
    """
    if isinstance(raw, RawProgramRun) and not raw.target.follow:
        return None
    bursts = burst_of(raw.sampler, side)
    enabled_ns = raw.sampler.enabled_ns_of(side)
    if not bursts or not 0 < bursts.armed_ns < enabled_ns or not isinstance(bursts.cpu_ns, int):
        return None
    if bursts.by_cpus and excludes_softirq(raw, side):
        return None
    return bursts.cpu_ns * _clock_of_bursts(raw, side, bursts) * enabled_ns / bursts.armed_ns


def apart_ns(raw: Measured, side: str) -> float:
    """How far chance may lead the samples of all bursts and the CPU time in them apart, scaled as both are.

    From how much the bursts differ in that. Threads that take turns every 10 us keep step with a timer of
    100 us for a part of a burst, so its samples are not independent; and a host may stop all CPUs for some ms
    without saying so, of which a timer makes one sample. What all bursts have alike is no chance.
    """
    bursts = burst_of(raw.sampler, side)
    if not bursts or bursts.count < 2:
        return 0.0
    if not isinstance(bursts.cpu_ns, int) or not isinstance(bursts.difference_us_squared, int):
        return 0.0
    mean_us = (bursts.samples * bursts.period_ns - bursts.cpu_ns) / 1000 / bursts.count
    squares_us2 = max(0.0, bursts.difference_us_squared - bursts.count * mean_us**2)
    deviation_us = math.sqrt(squares_us2 / (bursts.count - 1) * bursts.count)
    scale = raw.sampler.enabled_ns_of(side) / bursts.armed_ns
    return stats.student(VALIDITY_LEVEL, bursts.count - 1) * deviation_us * 1000 * scale


def _clock_of_bursts(raw: Measured, side: str, bursts: Burst) -> float:
    """How fast the side's clock goes beside the one that was read in its bursts.

    Timers of threads have a clock of their own. With timers of CPUs it is the CPU clock of the processes,
    which differs from task-clock (cpu_time.py) in the bursts as it does outside of them.
    """
    billed_ns = total(select(raw.run.segments, "ledger"), side, "process_cpu_ns")
    if not bursts.by_cpus or not billed_ns:
        return 1.0
    return 1 + bursts.by_cpus / bursts.count * (cpu_time(raw, side).ns / billed_ns - 1)


def stolen_share(raw: Measured) -> float:
    """The part of the CPUs' time that the hypervisor took while they had work.

    A clock goes on meanwhile. The timer fires once when the CPU comes back, however many periods have passed:
    hrtimer_forward_now() in perf_swevent_hrtimer(), kernel/events/core.c.
    """
    load = raw.machine_state
    if not load or not load.steal_ns or load.busy_ns is None:
        return 0.0
    return load.steal_ns / (load.steal_ns + load.busy_ns)


def stolen_in_bursts_ns(raw: Measured, side: str, stolen_ns: float) -> float:
    """How much more of the stolen time than their part the bursts of a side may have met, scaled as they are.

    Slices of stolen time fall into them by chance: of N slices that each fall into a part of 1/K the variance
    is that of N/K events, each of which counts K times. In no case it is more than all of it.
    """
    bursts = burst_of(raw.sampler, side)
    assert bursts is not None
    scale = raw.sampler.enabled_ns_of(side) / bursts.armed_ns
    chance = math.sqrt(stolen_ns * STOLEN_SLICE_NS * scale)
    return min(stats.normal_quantile(VALIDITY_LEVEL) * chance, stolen_ns * (scale - 1))


def cycles_of(raw: Measured, side: str) -> Counter | None:
    """The cycle counter of a side."""
    return {event_name(n): c for n, c in counters_of(raw, side).items()}.get("cycles")


def _short_bursts(spent: CpuTime, share: float) -> str:
    """Why the sampling timer is no fair witness of a process that sleeps all the time."""
    ran = f"it ran for {spent.stay_ns / 1000:.1f} us at a time"
    if share < 1:
        return f"{ran}, shorter than the timer interrupt may be late: {share:.0%} of its time was seen"
    return f"{ran}, and arming the timer costs at each of them: {share:.0%} of its time was seen"


def hidden_at_birth_ns(raw: Measured) -> float:
    """Of each thread that a watched program makes, the timer sees nothing before its first period is over."""
    bursts = burst_of(raw.sampler, "target")
    births = total(select(raw.run.segments, "ledger"), "target", "births") if bursts else 0
    return float(bursts.period_ns * births) if bursts else 0.0


def burst_spread(sampler: Sampler, side: str) -> float:
    """Standard deviation of the number of samples of a side, from its spread over bursts; 0 without bursts.

    Samples of one burst are neighbours: processes that take turns make their counts vary more than chance
    alone.
    """
    bursts = burst_of(sampler, side)
    if not bursts or bursts.count < 2:
        return 0.0
    count = bursts.count
    variance = (bursts.samples_squared - bursts.samples**2 / count) / (count - 1)
    return math.sqrt(max(0.0, variance) * count)


def sampled_share(raw: Measured, side: str, time: SideTime) -> float | None:
    """Which part of a side's CPU time the samples stand for; 1.0 when the sampler saw all of it.

    Of its CPU time while it was sampled, where a clock says that (sampled_time).
    """
    if time.event is None:
        return None
    exact, seen, unit, _ = _readings(raw, side, time)
    while_armed = armed_cpu_ns(raw, side)
    if unit == "ns" and while_armed:
        exact, seen = while_armed, weight_as_sampled(raw, side)
    return round(seen / exact, 4) if exact else None


def weight_as_sampled(raw: Measured, side: str) -> float:
    """The weight of all samples of a side, with those of arming its timers."""
    names = time_event(raw.samples) or ()
    return weights_of(raw.sampler, raw.samples, side, names, as_sampled=True).all_weight


def _readings(raw: Measured, side: str, time: SideTime) -> tuple[float | None, float, str, str]:
    """(exact, seen, unit, which clock) of a side."""
    if time.event is not None and "cycles" in time.event:
        # the counter counts whatever ran on top of the process, softirq too, whatever the CPU clock says
        cycles = cycles_of(raw, side)
        return (cycles.value if cycles else None), time.weights.all_weight, "cycles", "cycle counter"
    spent = cpu_time(raw, side)
    clock = spent.source + (", without softirq" if excludes_softirq(raw, side) else "")
    return float(spent.ns), clocked(time.weights, raw, side), "ns", clock


def _period(sampler: Sampler, side: str) -> float:
    """What one sample of a timer stands for: its period, and more where it was armed a part of the time."""
    bursts = burst_of(sampler, side)
    if not bursts:
        return 0.0
    return bursts.period_ns * (sampler.enabled_ns_of(side) / bursts.armed_ns if bursts.armed_ns else 1.0)


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
    low = share_of(time, softirqs, VALIDITY_LEVEL).low
    return ns * (1 - low * time.weights.all_samples / samples)


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

# SPDX-License-Identifier: GPL-2.0-only
"""Saving from a change of strategy: a program's send sizes, priced by a saved crossover. Pure.

A crossover gives the size above which the second strategy is cheaper, and the difference at each size. Each
send of a program is weighted by the cost of a send of equal size in the crossover. A send changes its
strategy if the alternative strategy is cheaper at its size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from copyscope.base.spelling import format_size
from copyscope.base.stats import LEVEL, Estimate
from copyscope.judge.crossing import at_size
from copyscope.judge.crossover_file import (
    OTHER_KIND,
    SavedCrossover,
    SizeQuestion,
    nearest_crossover,
    path_distance,
)
from copyscope.judge.crossover_sentences import SENDER_CPU
from copyscope.ledger.share import Share, percent
from copyscope.record.run import Run
from copyscope.record.segments import select, target_sum

# Lower end, value and upper end of an estimate.
LowValueHigh = tuple[float, float, float]


@dataclass(frozen=True)
class StrategyChange:
    """Effect of changing to the alternative strategy for those sends of a program that it makes cheaper.

    sends_share: fraction (0..1) of the program's sends that change their strategy
    value, low, high: change of the CPU time as a share of `base`, negative for a saving; low and high are
        None after a single repeat
    base: description of the CPU time that the share refers to
    """

    sends_share: float
    value: float
    low: float | None
    high: float | None
    base: str


def saving_sentence(row: SavedCrossover, question: SizeQuestion, run: Run) -> str | None:
    """Return a sentence on the saving or cost of a change of strategy, or None if the crossover has neither.

    question: the strategy and the size of the program's sends
    run: the run of the program
    """
    change = strategy_change(row, question, run)
    if change is None:
        return None
    if change.sends_share == 1:
        name = question.name
        subject = f"Turning {name} off" if question.used else f"With {name} for all its sends it"
    else:
        above = (row.above == row.pair[1]) != question.used
        size = f"{format_size(row.size_bytes)} or {'more' if above else 'less'}"
        name = "plain sends" if question.used else question.name
        subject = f"{percent(change.sends_share)} of its sends have {size}: with {name} for these it"
    return f"{subject} {_effect(change)}."


def _effect(change: StrategyChange) -> str:
    """Return a predicate on the saving or cost of a change, such as `would save 5 % (3 to 7 %) of ...`."""
    value = f"{abs(change.value) * 100:.0f} %"
    if change.low is None or change.high is None:
        verb, preposition = ("save", "of") if change.value < 0 else ("add", "to")
        return f"would {verb} about {value} {preposition} {change.base} (one repeat: no interval)"
    ends = sorted(round(abs(end) * 100) for end in (change.low, change.high))
    if change.high < 0:
        return f"would save {value} ({ends[0]} to {ends[1]} %) of {change.base}"
    if change.low > 0:
        return f"would add {value} ({ends[0]} to {ends[1]} %) to {change.base}"
    less, more = round(-change.low * 100), round(change.high * 100)
    return f"would make no measurable difference to {change.base}: between {less} % less and {more} % more"


def zerocopy_gain_clause(run: Run, rows: Sequence[SavedCrossover]) -> str:
    """Return a clause with the saving of zero-copy in traffic like a program's, or with how to measure it.

    The saving is a share of the CPU time of the crossover's traffic. The effect on the program's own CPU time
    is unknown.

    rows: saved crossovers of all machines, the newest file first
    """
    row = nearest_crossover([row for row in rows if row.elsewhere is None], run, "zero_copy")
    gain = None if row is None else zerocopy_gain(row, run)
    if row is None or gain is None:
        return "; to measure what it saves, run copyscope crossover over this path"
    source = f"(crossover over {row.path}, {row.file})"
    if gain.low < 0 < gain.high:
        return f"; no difference from plain sends was found for such sends {source}"
    ends = sorted((abs(gain.low), abs(gain.high)))
    share = Share(abs(gain.share or 0.0), *ends).shown()
    if gain.low < 0:
        return f"; yet for such sends zero-copy cost {share} more of the sender's CPU time {source}"
    return f"; for such sends zero-copy saved {share} of the sender's CPU time {source}"


def zerocopy_gain(row: SavedCrossover, run: Run) -> Share | None:
    """Return the saving of zero-copy in a crossover, as a share of the CPU time of plain sends, or None.

    The sends of the crossover are weighted by the sizes of the program's sends.
    """
    counts = _measured_sizes(row, run)
    turned_off = _time_change(row, counts, counts, used=True) if counts else None
    if turned_off is None or turned_off.ends is None:
        return None
    low, high = turned_off.ends
    low, value, high = (1 - 1 / (1 + change) for change in (low, turned_off.value, high))
    return Share(value, low, high)


def strategy_change(row: SavedCrossover, question: SizeQuestion, run: Run) -> StrategyChange | None:
    """Return the effect of a change of strategy on a program.

    Return None if the crossover has another kind of path or another quantity, if it lacks the program's
    sizes, or if the program sends nothing.
    """
    counts = _measured_sizes(row, run)
    if not counts:
        return None
    changing = {size: count for size, count in counts.items() if _is_cheaper(row, size, used=question.used)}
    changing = changing or counts
    change, share = _time_change(row, counts, changing, used=question.used), sending_share(run)
    base = f"its CPU time (its send calls take {percent(share)} of it)"
    if share is None:
        share, base = 1.0, "the CPU time that its sends take"
    low, high = (None, None) if change.ends is None else (end * share for end in change.ends)
    return StrategyChange(
        sum(changing.values()) / sum(counts.values()), change.value * share, low, high, base
    )


def _measured_sizes(row: SavedCrossover, run: Run) -> dict[int, int]:
    """Return size -> number of sends of a program, or {} if the crossover does not apply to the program."""
    sent = run.portrait.send
    if sent is None or row.quantity != SENDER_CPU or path_distance(row, run) == OTHER_KIND:
        return {}
    counts = typical_sizes([(int(low), int(count)) for low, count in sent.sizes], sent.bytes)
    return {size: count for size, count in counts.items() if ratio_at(row, size) is not None}


def _time_change(
    row: SavedCrossover, counts: Mapping[int, int], changing: Mapping[int, int], *, used: bool
) -> Estimate:
    """Return the relative change of the CPU time of all sends if some sends change their strategy.

    counts: size -> number of all sends
    changing: size -> number of sends that change
    used: True if the program sends by the second strategy now
    """
    ratios = {size: ratio for size in counts if (ratio := ratio_at(row, size)) is not None}
    costs_ns = {
        size: count * size * _cost_now(row, size, ratios[size], used=used) for size, count in counts.items()
    }
    total_ns = sum(costs_ns.values())
    changes = [(costs_ns[size] / total_ns, _cost_change(ratios[size], used=used)) for size in changing]
    low, value, high = (sum(weight * change[end] for weight, change in changes) for end in range(3))
    has_interval = all(ratios[size].ends is not None for size in changing)
    if not has_interval:
        return Estimate(value, None, None, 0.0, 0)
    return Estimate(value, low, high, LEVEL, 0)


def typical_sizes(slots: list[tuple[int, int]], sent_bytes: int) -> dict[int, int]:
    """Return size -> number of sends, estimated from power-of-two slots (lower end, number of sends).

    The mean size in every slot is assumed to be a fixed multiple (1 to 2) of its lower end, chosen so that
    the sizes add up to `sent_bytes`.
    """
    least_bytes = sum(low * count for low, count in slots)
    factor = min(2.0, max(1.0, sent_bytes / least_bytes)) if least_bytes else 1.0
    return {max(1, round(low * factor)): count for low, count in slots if count}


def _is_cheaper(row: SavedCrossover, size_bytes: int, *, used: bool) -> bool:
    """Return True if the alternative strategy is cheaper at a size than the strategy that the program uses.

    used: True if the program sends by the second strategy now
    """
    if row.verdict != "crosses" or row.size_bytes is None:
        return True
    second_is_better = (size_bytes >= row.size_bytes) == (row.above == row.pair[1])
    return second_is_better != used


def _cost_now(row: SavedCrossover, size_bytes: int, ratio: Estimate, *, used: bool) -> float:
    """Return the cost per KiB of the program's present sends; 1 for all sizes if the cost is unknown.

    ratio: cost of the second strategy divided by the cost of the first
    used: True if the program sends by the second strategy now
    """
    costs = {size: Estimate(cost_ns, None, None, 0.0, 0) for size, cost_ns in row.costs.items()}
    cost = _at_nearest_size(costs, size_bytes)
    return (1.0 if cost is None else cost.value) * (ratio.value if used else 1.0)


def _cost_change(ratio: Estimate, *, used: bool) -> LowValueHigh:
    """Return the relative increase of a send's cost if the send changes its strategy.

    ratio: cost of the second strategy divided by the cost of the first
    used: True if the program sends by the second strategy now
    """
    low, high = ratio.ends or (ratio.value, ratio.value)
    if used:
        return 1 / high - 1, 1 / ratio.value - 1, 1 / low - 1
    return low - 1, ratio.value - 1, high - 1


def ratio_at(row: SavedCrossover, size_bytes: int) -> Estimate | None:
    """Return the interpolated ratio second/first at a size, or the ratio of the nearest measured size."""
    ratios = {
        measured.size_bytes: Estimate(measured.ratio, measured.low, measured.high, LEVEL, 0)
        for measured in row.measured
        if measured.ratio is not None
    }
    return _at_nearest_size(ratios, size_bytes)


def _at_nearest_size(estimates: Mapping[int, Estimate], size_bytes: int) -> Estimate | None:
    """Return the interpolated estimate at a size, or the estimate at the nearest measured size."""
    if not estimates:
        return None
    return at_size(estimates, min(max(size_bytes, min(estimates)), max(estimates)))


def sending_share(run: Run) -> float | None:
    """Return the fraction (0..1) of the program's CPU time in its send calls, or None if no call was timed.

    Softirq work inside the calls is included. The result is limited to 1, because the CPU clock of a process
    is not read exactly at the ends of a segment.
    """
    process_ns = target_sum(select(run.raw.run.segments, "calls"), lambda target: target.process_cpu_ns)
    sent = run.portrait.send
    send_calls = {row.syscall for row in sent.by_call} if sent else set()
    calls_ns = [
        row.on_cpu_ns + (row.softirq_ns or 0)
        for row in run.raw.calls
        if row.syscall in send_calls and row.on_cpu_ns is not None
    ]
    if not process_ns or not calls_ns:
        return None
    return min(1.0, sum(calls_ns) / process_ns)

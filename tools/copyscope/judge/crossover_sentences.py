# SPDX-License-Identifier: GPL-2.0-only
"""Crossovers in sentences: where one strategy beats another, by how much, and why. Pure.

A sentence names the sizes with a certain difference, and gives the ratio and its interval at one of them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from copyscope.base.spelling import counted, format_size, three_digits
from copyscope.judge.crossover import Crossover, MeasuredRatio, sizes_by_better, spell_sizes
from copyscope.ledger.attribution import samples_of_run
from copyscope.record.run import Run
from copyscope.taxonomy.accounts import LATE

# Typical size of a send in bytes. Sentences quote the ratio at the deciding size nearest to this size.
TYPICAL_BYTES = 65_536
GOODPUT = "goodput_gbps"
CPU = "system_cpu_ns_per_kib"
SENDER_CPU = "sender_cpu_ns_per_kib"
STRATEGY_NAMES = {
    "two_copy": "two-copy",
    "one_copy": "one-copy",
    "zero_copy": "zero-copy",
    "per_field": "one send() per field",
}
QUANTITIES = {
    GOODPUT: "goodput",
    SENDER_CPU: "CPU time of the sender",
    "receiver_cpu_ns_per_kib": "CPU time of the receiver",
    CPU: "CPU time of both sides",
}


def main_crossover(crossovers: Sequence[Crossover]) -> Crossover | None:
    """Return the crossover of zero-copy and one-copy in CPU time of both sides, with the fewest threads.

    If that pair is missing, return zero-copy and two-copy; if both are, the first crossover in CPU time.
    """
    for pair in (("one_copy", "zero_copy"), ("two_copy", "zero_copy")):
        matching = [row for row in crossovers if row.pair == pair and row.quantity == CPU]
        if matching:
            return min(matching, key=lambda row: row.threads)
    of_cpu_time = [row for row in crossovers if row.quantity == CPU]
    return next(iter([*of_cpu_time, *crossovers]), None)


def path_sentence(crossovers: Sequence[Crossover], runs: Iterable[Run]) -> str:
    """Describe at which sizes zero-copy is better or worse on this path, and by how much."""
    main = main_crossover(crossovers)
    if main is None:
        return "undetermined: no two strategies were measured at the same sizes: run the experiment first"
    text = f"On this path {crossover_clause(main)} ({QUANTITIES[main.quantity]}, {_threads(main)})."
    is_worse = any(row.better == main.pair[0] for row in main.measured)
    copier = find_copier(runs) if main.pair[1] == "zero_copy" and is_worse else None
    if copier:
        text += f" The kernel copies anyway ({copier})."
    key = (main.pair, main.threads, main.where)
    same_setting = (row for row in crossovers if (row.pair, row.threads, row.where) == key)
    goodput = next((row for row in same_setting if row.quantity == GOODPUT), main)
    return text if goodput is main else f"{text} Goodput: {crossover_clause(goodput)}."


def _threads(row: Crossover) -> str:
    return counted(row.threads, "thread")


def crossover_clause(row: Crossover) -> str:
    """Describe where the second strategy of a pair costs more or less than the first, with ratios.

    An example is `zero-copy takes more CPU time than one-copy from 4 KiB to 16 KiB (1.4 times at 16 KiB, 95 %
    interval 1.2 to 1.6); no difference found at 64 KiB`.
    """
    first, second = (STRATEGY_NAMES.get(name, name) for name in row.pair)
    by_better = sizes_by_better(row.measured)
    if {*by_better} <= {None}:
        reason = row.evidence.removeprefix("undetermined: ")
        return f"{second} against {first} is undetermined: {reason}"
    if row.verdict == "crosses" and row.size_bytes is not None:
        return f"{second} {_crossing_clause(row, first)}"
    parts = []
    for name, sizes in by_better.items():
        where = spell_sizes(sizes, row.measured)
        if name is None:
            continue
        parts.append(f"{_comparison(row, name)} {first} {where} ({_ratio_text(_typical(row, name))})")
    text = f"{second} {', and '.join(parts)}"
    undecided = by_better.get(None)
    return f"{text}; no difference found {spell_sizes(undecided, row.measured)}" if undecided else text


def _crossing_clause(row: Crossover, first: str) -> str:
    """Describe on which side of a crossing the second strategy is better. `first`: the first strategy."""
    above, below = ("above", "below") if row.above == row.pair[1] else ("below", "above")
    interval = f"95 % interval {format_size(row.low)} to {format_size(row.high)}"
    better, worse = (_typical(row, name) for name in row.pair[::-1])
    return (
        f"{_comparison(row, row.pair[1])} {first} {above} {format_size(row.size_bytes)} ({interval}): "
        f"{_ratio_text(better)}; {below} that size {_ratio_text(worse)}"
    )


def _comparison(row: Crossover, better: str) -> str:
    """Return the comparative of a quantity: `takes less CPU time than`. `better`: the better strategy."""
    is_better = better == row.pair[1]
    if row.quantity == GOODPUT:
        return f"has {'more' if is_better else 'less'} goodput than"
    return f"takes {'less' if is_better else 'more'} CPU time than"


def _typical(row: Crossover, better: str) -> MeasuredRatio:
    """Return the measured ratio nearest to TYPICAL_BYTES among the sizes at which `better` is better."""
    decided = [at for at in row.measured if at.better == better]
    return min(decided, key=lambda at: abs(at.size_bytes - TYPICAL_BYTES))


def _ratio_text(at: MeasuredRatio) -> str:
    """Format a ratio with its size and interval: `1.4 times at 16 KiB, 95 % interval 1.2 to 1.6`."""
    value = f"{three_digits(at.ratio.value)} times at {format_size(at.size_bytes)}"
    if at.ratio.ends is None:
        return value
    return f"{value}, 95 % interval {' to '.join(map(three_digits, at.ratio.ends))}"


def find_copier(runs: Iterable[Run]) -> str | None:
    """Return the kernel function that copied payload sent with MSG_ZEROCOPY, or None if nothing was copied.

    If the notifications report copies but no sample was taken in a copy, return the reason in words.
    """
    functions: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for run in runs:
        zerocopy = run.derived.zerocopy
        if zerocopy is None or zerocopy.cause is None or not run.derived.verdict.valid:
            continue
        reasons[zerocopy.cause.code.replace("_", " ")] += 1
        for row in samples_of_run(run.raw.samples):
            if row.category in LATE:
                functions[row.symbol] += row.samples
    for counts in (functions, reasons):
        if counts:
            return min(counts, key=lambda name: (-counts[name], name))
    return None

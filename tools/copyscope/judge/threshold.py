"""What zero-copy or sendfile would save this program: its own sizes of sends, at measured costs. Pure.

A crossover says from which size on the second strategy is the cheaper one, and by how much at each size. The
program's sends of each size cost as much of its time as they would by the first strategy; those on the better
side of the crossover change to the second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from copyscope.judge.crossover_file import OTHER_KIND, SENDER_CPU, Found, Question, distance, nearest
from copyscope.judge.interpolation import at_size
from copyscope.ledger.share import Share, percent
from copyscope.record.check import Whole
from copyscope.record.segments import select, total
from copyscope.stats import LEVEL, Estimate
from copyscope.units import format_size

Ends = tuple[float, float, float]


@dataclass(frozen=True)
class Change:
    """What it comes to if the program's sends from (or below) a size go the other way.

    sends_share: of its sends, how many change
    low, value, high: change of the CPU time, as a share of `whose`; negative: saved. None: of one repeat
    """

    sends_share: float
    value: float
    low: float | None
    high: float | None
    whose: str


def sentence(row: Found, asked: Question, run: Whole) -> str | None:
    """What changing its sends would save or cost; None where the crossover does not say."""
    change = change_of(row, asked, run)
    if change is None:
        return None
    if change.sends_share == 1:
        name = asked.name
        what = f"Turning {name} off" if asked.used else f"With {name} for all its sends it"
    else:
        above = (row.above == row.pair[1]) != asked.used
        size = f"{format_size(row.size_bytes)} or {'more' if above else 'less'}"
        name = "plain sends" if asked.used else asked.name
        what = f"{percent(change.sends_share)} of its sends have {size}: with {name} for these it"
    return f"{what} {_effect(change)}."


def _effect(change: Change) -> str:
    value = f"{abs(change.value) * 100:.0f} %"
    if change.low is None or change.high is None:
        verb = "save about" if change.value < 0 else "cost about"
        return f"would {verb} {value} of {change.whose} (one repeat: no interval)"
    ends = sorted(round(abs(end) * 100) for end in (change.low, change.high))
    if change.high < 0:
        return f"would save {value} ({ends[0]} to {ends[1]} %) of {change.whose}"
    if change.low > 0:
        return f"would cost {value} ({ends[0]} to {ends[1]} %) more of {change.whose}"
    saved, cost = round(-change.low * 100), round(change.high * 100)
    return f"makes no difference that was found: between {saved} % saved and {cost} % more of {change.whose}"


def said_gain(run: Whole, rows: Sequence[Found]) -> str:
    """What zero-copy saved in sends like those of this program, as the end of a sentence; or unknown.

    Of the traffic of the crossover: how much of the program's own time would change is not known.
    """
    row = nearest([row for row in rows if row.elsewhere is None], run, "zero_copy")
    saved = None if row is None else gain(row, run)
    if row is None or saved is None:
        return "; what it saves is not measured: copyscope crossover, over this path"
    where = f"(crossover over {row.path}, {row.file})"
    if saved.low < 0 < saved.high:
        return f"; in sends like these no difference to plain ones was found {where}"
    ends = sorted((abs(saved.low), abs(saved.high)))
    said = Share(abs(saved.share or 0.0), *ends).shown()
    if saved.low < 0:
        return f", but in sends like these zero-copy cost {said} more of the sender's CPU time {where}"
    return f"; in sends like these zero-copy saved {said} of the sender's CPU time {where}"


def gain(row: Found, run: Whole) -> Share | None:
    """Of the CPU time that plain sends took in the crossover; None where it does not say."""
    sizes = _sizes(row, run)
    off = _change(row, sizes, sizes, used=True) if sizes else None
    if off is None or off.ends is None:
        return None
    low, value, high = (1 - 1 / (1 + change) for change in (off.ends[0], off.value, off.ends[1]))
    return Share(value, low, high)


def change_of(row: Found, asked: Question, run: Whole) -> Change | None:
    """None where the costs are of another path or quantity, or of no size, or it sends nothing."""
    sizes = _sizes(row, run)
    if not sizes:
        return None
    changed = {size: count for size, count in sizes.items() if _changes(row, size, used=asked.used)} or sizes
    found, share = _change(row, sizes, changed, used=asked.used), sending_share(run)
    whose = f"its CPU time (by its send calls alone, {percent(share)} of it)"
    if share is None:
        share, whose = 1.0, "the CPU time that its sends take"
    low, high = (None, None) if found.ends is None else (end * share for end in found.ends)
    return Change(sum(changed.values()) / sum(sizes.values()), found.value * share, low, high, whose)


def _sizes(row: Found, run: Whole) -> dict[int, int]:
    """The sizes of its sends; none where the crossover says nothing of these."""
    sent = run.portrait.send
    if sent is None or row.quantity != SENDER_CPU or distance(row, run) == OTHER_KIND:
        return {}
    sizes = sizes_of([(int(low), int(count)) for low, count in sent.sizes], sent.bytes)
    return {size: count for size, count in sizes.items() if ratio_at(row, size) is not None}


def _change(row: Found, sizes: Mapping[int, int], changed: Mapping[int, int], *, used: bool) -> Estimate:
    """Of the CPU time that all its sends take now: what goes with those that change, or comes (above 0)."""
    ratios = {size: ratio for size in sizes if (ratio := ratio_at(row, size)) is not None}
    now_ns = {size: count * size * _now(row, size, ratios[size], used=used) for size, count in sizes.items()}
    all_ns = sum(now_ns.values())
    parts = [(now_ns[size] / all_ns, _part(ratios[size], used=used)) for size in changed]
    low, value, high = (sum(weight * part[end] for weight, part in parts) for end in range(3))
    known = all(ratios[size].ends is not None for size in changed)
    return Estimate(value, low if known else None, high if known else None, LEVEL if known else 0.0, 0)


def sizes_of(slots: list[tuple[int, int]], sent_bytes: int) -> dict[int, int]:
    """Size -> calls, from powers of two: taken to lie as far into each of them as all do on average."""
    least = sum(low * count for low, count in slots)
    stretch = min(2.0, max(1.0, sent_bytes / least)) if least else 1.0
    return {max(1, round(low * stretch)): count for low, count in slots if count}


def _changes(row: Found, size_bytes: int, *, used: bool) -> bool:
    """Whether sends of this size are on the other side of the crossover than the program's way."""
    if row.verdict != "crosses" or row.size_bytes is None:
        return True
    second_is_better = (size_bytes >= row.size_bytes) == (row.above == row.pair[1])
    return second_is_better != used


def _now(row: Found, size_bytes: int, ratio: Estimate, *, used: bool) -> float:
    """What a KiB costs as the program sends it; 1 where nobody measured it: then bytes decide."""
    cost = _clamped({size: Estimate(ns, None, None, 0.0, 0) for size, ns in row.costs.items()}, size_bytes)
    return (1.0 if cost is None else cost.value) * (ratio.value if used else 1.0)


def _part(ratio: Estimate, *, used: bool) -> Ends:
    """By how much a send gets dearer: the least, the likely, the most."""
    low, high = ratio.ends or (ratio.value, ratio.value)
    if used:
        return 1 / high - 1, 1 / ratio.value - 1, 1 / low - 1
    return low - 1, ratio.value - 1, high - 1


def ratio_at(row: Found, size_bytes: int) -> Estimate | None:
    """Second / first at this size, from the measured sizes around it; beyond them that of the nearest."""
    known = {
        at.size_bytes: Estimate(at.ratio, at.low, at.high, LEVEL, 0)
        for at in row.measured
        if at.ratio is not None
    }
    return _clamped(known, size_bytes)


def _clamped(known: Mapping[int, Estimate], size_bytes: int) -> Estimate | None:
    return at_size(known, min(max(size_bytes, min(known)), max(known))) if known else None


def sending_share(run: Whole) -> float | None:
    """The part of the program's CPU time in its send calls, softirq work inside of them included; None when
    no call was timed. The clock of a process is read beside a segment, not at its ends: at most all of it.
    """
    spent_ns = total(select(run.raw.run.segments, "calls"), "target", "process_cpu_ns")
    sent = run.portrait.send
    sends = {row.syscall for row in sent.by_call} if sent else set()
    took_ns = [
        row.on_cpu_ns + (row.softirq_ns or 0)
        for row in run.raw.calls
        if row.syscall in sends and row.on_cpu_ns is not None
    ]
    if not spent_ns or not took_ns:
        return None
    return min(1.0, sum(took_ns) / spent_ns)

"""What a model of the caches says of C2, C8, C10 to C12 and C18: misses counted in a simulated machine.

A verdict here is one in the model, and stands beside that of the machine: it says how many lines a strategy
must move, not how long that takes.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean

from copyscope.compare.estimates import Estimate
from copyscope.study.claims.caches import L1_DROP, LLC_DROP
from copyscope.study.claims.mechanisms import per_send
from copyscope.study.claims.model import HOLDS, REFUTED, UNDETERMINED, Finding, Row, Verdict
from copyscope.study.modelled import LEVELS, TITLES, Counted, ModelPoint, change, clear, estimate, pairs
from copyscope.units import format_whole_size

KIB = 1024
# Fewer lines per KiB than this are none: a copy moves 32.
NOTHING = 1.0
COPY_READS = 16.0
FLUSHES = "tlb_flushes_per_kib"
SWITCHING = "wakeup_sched"
Judge = Callable[[Sequence[ModelPoint]], Finding]
Pairs = Sequence[tuple[ModelPoint, ModelPoint]]


def judge(check: str, points: Sequence[ModelPoint]) -> Finding | None:
    """What the model says of a claim, by the name of its check; None: nothing, or nothing was simulated."""
    return JUDGES[check](points) if check in JUDGES and points else None


def llc_drop(points: Sequence[ModelPoint]) -> Finding:
    """C10: at 4 KiB, the misses of the sender in the last level."""
    return _fraction(_at(points, "two_copy", "one_copy", 4 * KIB), "llc", "sender", LLC_DROP)


def l1_drop(points: Sequence[ModelPoint]) -> Finding:
    """C12: at 1 KiB, the misses of both sides in the first level."""
    return _fraction(_at(points, "two_copy", "zero_copy", KIB), "l1d", None, L1_DROP)


def zero_fewest_llc(points: Sequence[ModelPoint]) -> Finding:
    """C11: no strategy has fewer misses in the last level than zero_copy, at no size."""
    rows: list[Row] = []
    more: list[tuple[Estimate, ModelPoint, str]] = []
    fewer, compared = 0, 0
    for other in ("per_field", "two_copy", "one_copy"):
        for theirs, ours in _on(points, other, "zero_copy", "veth"):
            found = change(theirs.misses("llc"), ours.misses("llc"))
            compared += 1
            rows.append(_row(f"LLC misses: zero_copy - {other}", ours, found))
            if clear(found, NOTHING) and found.value > 0:
                more.append((found, ours, other))
            fewer += clear(found, NOTHING) and found.value < 0
    if not compared:
        return _nothing()
    text = f"of {compared} comparisons zero_copy misses more in {len(more)}, fewer in {fewer}"
    if more:
        worst, point, other = max(more, key=lambda one: one[0].value)
        text += f"; at {format_whole_size(point.size)} {_line(worst, signed=True)} than {other}"
        text += f" ({point.setting.text})"
    verdict: Verdict = REFUTED if more else HOLDS if fewer == compared else UNDETERMINED
    return Finding(verdict, text, rows)


def pinning_flushes(points: Sequence[ModelPoint]) -> Finding:
    """C8: instructions of the sender that drop translations, per send, without those that switch tasks."""
    rows: list[Row] = []
    total: Counter[str] = Counter()
    for pair in pairs(points, "one_copy", "zero_copy"):
        for point in pair:
            if any(FLUSHES not in row for boot in point.boots for row in boot["rows"]):
                return Finding(UNDETERMINED, "these boots are from before flushes were counted", [])
            flushes = sum(_flushes(boot) for boot in point.boots)
            sends = sum(boot["messages"] for boot in point.boots)
            total.update({point.impl: flushes, f"{point.impl} sends": sends})
            rows.append(
                {"what": "sender: flushes of the TLB, without task switches", "impl": point.impl,
                 "size_bytes": point.size, "flushes": flushes, "sends": sends,
                 "setting": point.setting.text, "method": "modelled"}
            )  # fmt: skip
    if not rows:
        return _nothing()
    sends = {impl: total[f"{impl} sends"] for impl in ("zero_copy", "one_copy")}
    counted = ", ".join(f"{impl} {total[impl]:,} in {n:,} sends" for impl, n in sends.items())
    said = f"instructions of the sender that drop translations, without task switches: {counted}"
    pinned, plain = (total[impl] / n for impl, n in sends.items())
    return per_send(pinned, plain, sends["zero_copy"], said, rows)


def _flushes(boot: Counted) -> int:
    """Whole numbers were divided by the bytes, and rounded."""
    mine = [row for row in boot["rows"] if row["side"] == "sender" and row["category"] != SWITCHING]
    return round(sum(float(row[FLUSHES]) for row in mine) * float(boot["delivered_bytes"]) / KIB)


def second_copy(points: Sequence[ModelPoint]) -> Finding:
    """C2, explained: from which level the second copy of two_copy reads what the first has just written."""
    rows, said = [], []
    for setting in dict.fromkeys(point.setting for point in points):
        mine = [p for p in points if (p.setting, p.impl) == (setting, "two_copy") and setting.path == "veth"]
        if len(mine) < 3:
            continue
        reached = []
        for level in LEVELS:
            second = (f"{level}_load_misses",)
            missed = {p.size: fmean(p.values(second, lambda row: row["category"] == "copy_in")) for p in mine}
            counted = {str(size): round(value, 3) for size, value in missed.items()}
            what = f"two_copy: copy_in, {TITLES[level]} load misses per KiB"
            rows.append({"what": what, "setting": setting.text, "method": "modelled", "misses": counted})
            over = [size for size, value in missed.items() if value > COPY_READS / 2]
            if over:
                reached.append(f"{TITLES[level]} from {format_whole_size(min(over))} on")
        held = f"misses {', '.join(reached)}" if reached else "misses no level"
        said.append(f"{setting.cache}: it {held}")
    if not said:
        return _nothing()
    text = (
        "explained, not judged (no time): the second copy reads what the first has just written, and misses a"
    )
    text += f" cache once a message outgrows it. {'; '.join(said)}"
    return Finding(UNDETERMINED, text, rows)


def zero_wins_on_a_nic(points: Sequence[ModelPoint]) -> Finding:
    """C18, by mechanism: over two cards zero_copy's sender brings fewer lines into L1D from 64 KiB on."""
    rows: list[Row] = []
    fewer: dict[int, bool] = {}
    more = False
    for one, zero in _on(points, "one_copy", "zero_copy", "nics"):
        found = change(one.misses("l1d", side="sender"), zero.misses("l1d", side="sender"))
        rows.append(_row("sender, L1D misses: zero_copy - one_copy", zero, found))
        fewer[zero.size] = fewer.get(zero.size, True) and clear(found, NOTHING) and found.value < 0
        more |= zero.size >= 64 * KIB and clear(found, NOTHING) and found.value > 0
    if not rows:
        return _nothing()
    shown = ", ".join(f"{format_whole_size(row['size_bytes'])} {row['value']:+.1f}" for row in rows)
    text = f"by mechanism: L1D misses of the sender per KiB, zero_copy - one_copy: {shown}"
    claimed = [is_fewer for size, is_fewer in fewer.items() if size >= 64 * KIB]
    if more:
        return Finding(REFUTED, text, rows)
    if not claimed or not all(claimed):
        return Finding(UNDETERMINED, f"no clear difference from 64 KiB on: {text}", rows)
    first = min(size for size in fewer if all(fewer[other] for other in fewer if other >= size))
    return Finding(HOLDS, f"{text}; fewer from {format_whole_size(first)} on", rows)


def _on(points: Sequence[ModelPoint], first: str, second: str, path: str) -> Pairs:
    return [pair for pair in pairs(points, first, second) if pair[0].setting.path == path]


def _at(points: Sequence[ModelPoint], first: str, second: str, size: int) -> Pairs:
    return [pair for pair in _on(points, first, second, "veth") if pair[0].size == size]


def _fraction(found: Pairs, level: str, side: str | None, most: float) -> Finding:
    """Whether in every setting at most this share of the misses of the first is left in the second."""
    if not found:
        return _nothing()
    verdicts: list[Verdict] = []
    said, rows = [], []
    for before, after in found:
        ours, theirs = before.misses(level, side=side), after.misses(level, side=side)
        first, second = estimate(ours), estimate(theirs)
        # What is left above the claimed share: negative where the drop is at least as large.
        above = change([most * value for value in ours], theirs)
        rows.append(_row(f"{TITLES[level]} misses: {before.impl}", before, first))
        rows.append(_row(f"{TITLES[level]} misses: {after.impl}", after, second))
        text = f"{before.setting.cache}: {before.impl} {_line(first)}, {after.impl} {_line(second)}"
        if max(first.value, second.value) < NOTHING:
            verdicts.append(REFUTED)
            text += ": neither misses it, so that nothing drops"
        elif clear(above, 0.0):
            verdicts.append(HOLDS if above.value < 0 else REFUTED)
        else:
            verdicts.append(UNDETERMINED)
        said.append(text)
    verdict = REFUTED if REFUTED in verdicts else HOLDS if set(verdicts) == {HOLDS} else UNDETERMINED
    who = "both sides" if side is None else f"the {side}"
    size = format_whole_size(found[0][0].size)
    text = f"{TITLES[level]} misses per KiB of {who} at {size} (claimed: {most:.3g} times as many)"
    return Finding(verdict, f"{text}: {'; '.join(said)}", rows)


def _line(found: Estimate, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    spread = "" if found.low is None or found.high is None else f" ({found.low:.1f} to {found.high:.1f})"
    return f"{found.value:{sign}.1f}{spread}"


def _row(what: str, point: ModelPoint, found: Estimate) -> Row:
    row: Row = {"what": what, "size_bytes": point.size, "setting": point.setting.text, "method": "modelled"}
    return row | {"value": found.value, "low": found.low, "high": found.high, "boots": found.samples}


def _nothing() -> Finding:
    return Finding(UNDETERMINED, "not simulated: run copyscope sweep simulated", [])


JUDGES: dict[str, Judge] = {
    "two_one_crossover": second_copy,
    "pinning_flushes": pinning_flushes,
    "llc_drop": llc_drop,
    "zero_fewest_llc": zero_fewest_llc,
    "l1_drop": l1_drop,
    "zero_wins_on_a_nic": zero_wins_on_a_nic,
}

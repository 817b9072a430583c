"""One setting measured twice: what differs, whether it is worse, and copies that appeared. Pure.

Times are judged by their interval: a regression lies with the whole of it beyond the threshold, which is the
larger of THRESHOLD and what equal runs differ by on this host. What is counted is judged by its value.
Twenty rows at 95 % each would cry wolf once a run: goodput, all CPU time and what is counted decide, and the
rows of CPU time say where it went.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, geometric_mean

from copyscope import stats
from copyscope.judge.estimates import row_costs
from copyscope.judge.metrics import METRICS, Scalar, Value, cpu_per_kib, delivered_bytes, read, spenders
from copyscope.record import segments
from copyscope.record.check import Whole
from copyscope.record.segments import goodput_gbps, select
from copyscope.stats import Missing

THRESHOLD = 0.02
# What somebody who repeats wants to find, and in how many of ten comparisons.
WANTED, POWER = 0.05, 0.9
# The exponential of more has no floating-point number: e^700 is 10^304.
MOST_LOG = 700.0
# Of the payload: of what is counted exactly, a larger share is a difference.
EXACT = 0.01
WORSE, BETTER, SAME, UNSURE = "worse", "better", "no difference", "not clear"
# Of what nothing can be said.
UNKNOWN = "n/a"
COPIES = ("file_read", "gather", "copy_in", "deferred", "silent", "copy_out", "tun")
# Copies that nobody asked for; `flagged` are zero-copy sends that the kernel reported as copied.
HIDDEN = ("deferred", "silent", "flagged")
GOODPUT, CPU = "goodput_gbps", "cpu_ns_per_kib"
BYTES, CALLS, SENDS = "bytes/B", "calls/MiB", "of sends"
ALL = "all copies"
Key = tuple[tuple[str, Scalar], ...]
Counted = dict[tuple[str, str, str], float]  # (account, side, unit) -> what was counted for the payload
ROUND_TRIPS = ("rtt_p50_us", "rtt_p99_us")
ONE_RUN = "one run cannot show run-to-run noise: repeat, or measure it (compare A A)"


@dataclass(frozen=True)
class Row:
    """One thing before and after. `change`, `low` and `high` are shares of what `base` says, 0.05 is 5 %.

    `side`: of what is counted at one, and of the copy to a relay. Times are geometric means, so that they
    agree with the change.
    """

    what: str
    side: str | None
    unit: str
    before: float | None = None
    after: float | None = None
    base: str = "itself"  # or cpu (all CPU time before), or payload
    change: float | None = None
    low: float | None = None
    high: float | None = None
    threshold: float = EXACT
    verdict: str = UNKNOWN
    decides: bool = False
    reason: str | None = None
    # Of a row of CPU time: beyond the threshold also at a level that leaves one false alarm for all rows.
    sure: bool = False


@dataclass(frozen=True)
class Appeared:
    """A copy that was not there before, as shares of the bytes or of the sends."""

    copy: str
    before: float
    after: float


@dataclass(frozen=True)
class How:
    """How two groups of runs are compared.

    `paired`: run N of both ran in one block. `chosen`: somebody chooses between the two, so that what each
    copies is its nature and no fault. `noise`: metric -> what two equal runs differ by on this host.
    """

    paired: bool = False
    chosen: bool = False
    noise: Mapping[str, float] | None = None
    level: float = stats.LEVEL

    def threshold(self, metric: str, runs: tuple[int, int]) -> float:
        """Of means of so many runs; the noise is of two (comparison.noise)."""
        single = (self.noise or {}).get(metric, 0.0)
        return max(THRESHOLD, single * math.sqrt((1 / runs[0] + 1 / runs[1]) / 2))


@dataclass(frozen=True)
class Difference:
    """All rows of one setting, measured so often before and after."""

    setting: dict[str, Scalar]
    runs: tuple[int, int]
    verdict: str
    appeared: tuple[Appeared, ...]
    rows: tuple[Row, ...]


def enough(rows: Sequence[Row], runs: tuple[int, int], how: How) -> int | None:
    """So many runs of each find a change of WANTED in nine of ten comparisons, as far as runs lie apart here.

    By goodput or by CPU time: that one which does not tell yet, or needs fewer; None where it would tell with
    no more runs, has no interval, or the known noise of this host is as large. The half of an interval
    is a quantile times the error of the mean; that goes down with the root of the number of runs.
    """
    quantile = stats.normal_quantile(how.level) + stats.normal_quantile(2 * POWER - 1)
    needed = []
    for row in rows if min(runs) > 1 else ():
        room = math.log1p(WANTED) - math.log1p(row.threshold)
        if row.what not in ("goodput", "CPU time") or row.verdict != UNSURE or room <= 0:
            continue
        if row.low is not None and row.high is not None:
            half = (math.log1p(row.high) - math.log1p(row.low)) / 2
            error = half / stats.student(how.level, min(runs) - 1)
            needed.append(math.ceil(min(runs) * (quantile * error / room) ** 2))
    return next((count for count in sorted(needed) if count > min(runs)), None)


def judge(low: float, high: float, threshold: float, metric: str = CPU) -> str:
    """Where the interval of a change lies: less goodput is worse, more of all else is."""
    if metric == GOODPUT:
        low, high = -high, -low
    if low > threshold:
        return WORSE
    if high < -threshold:
        return BETTER
    return SAME if -threshold < low and high < threshold else UNSURE


def compare(before: Sequence[Whole], after: Sequence[Whole], how: How, setting: Key = ()) -> Difference:
    """Valid runs of one setting, before and after; one or more of each."""
    rows = [row for name in (GOODPUT, CPU, *ROUND_TRIPS) if (row := metric_row(before, after, name, how))]
    tables = counted(before), counted(after)
    rows += exact_rows(*tables, chosen=how.chosen)
    rows += cost_rows(before, after, how)
    appeared = tuple(find_appeared(*tables))
    verdict = WORSE if appeared and not how.chosen else verdict_of(rows)
    return Difference(dict(setting), (len(before), len(after)), verdict, appeared, tuple(rows))


def verdict_of(rows: Sequence[Row]) -> str:
    """Of those that decide: one that is worse is enough."""
    found = {UNSURE if row.verdict == UNKNOWN else row.verdict for row in rows if row.decides}
    return next((verdict for verdict in (WORSE, UNSURE, BETTER) if verdict in found), SAME)


def metric_row(before: Sequence[Whole], after: Sequence[Whole], name: str, how: How) -> Row | None:
    """A metric over all runs; None where it has no meaning in either (round trips of a stream)."""
    readings = [[read_metric(run, name) for run in runs] for runs in (before, after)]
    values = [[one for one in group if not isinstance(one, Missing) and one > 0] for group in readings]
    reason = next((one.reason for group in readings for one in group if isinstance(one, Missing)), None)
    if name in ROUND_TRIPS and not any(values):
        return None
    threshold = how.threshold(name, (len(before), len(after)))
    label = {GOODPUT: "goodput", CPU: "CPU time"}.get(name, name.removesuffix("_us"))
    unit = METRICS[name].unit if name in METRICS else "ns/KiB"
    # The 99th percentile of a short run is a handful of requests.
    decides = name != "rtt_p99_us"
    empty = Row(label, None, unit, threshold=threshold, decides=decides, reason=reason)
    if len(values[0]) < len(before) or len(values[1]) < len(after):
        return replace(empty, reason=reason or "zero has no ratio")
    known = replace(empty, before=geometric_mean(values[0]), after=geometric_mean(values[1]))
    alone = len(before) == len(after) == 1
    spread = [within_run(runs[0], name) for runs in (before, after)] if alone else values
    if alone and min(map(len, spread)) < 2:
        spread = values
    logs = [[math.log(value) for value in group] for group in spread]
    made = stats.difference_of(*logs, paired=how.paired and not alone, level=how.level)
    # Of single runs the segments say how wide, the whole run says where.
    shift = math.log(values[1][0] / values[0][0]) - made.value if alone else 0.0
    change = share_of(made.value + shift)
    if made.ends is None:
        return replace(known, change=change, reason=ONE_RUN)
    low, high = (share_of(end + shift) for end in made.ends)
    found = judge(low, high, threshold, name)
    row = replace(known, change=change, low=low, high=high, verdict=found)
    return replace(row, verdict=UNKNOWN, reason=ONE_RUN) if alone and how.noise is None else row


def share_of(log: float) -> float:
    """A change as a share, from the logarithm of its ratio."""
    return math.expm1(min(log, MOST_LOG))


def read_metric(run: Whole, name: str) -> Value:
    """A metric of a run of either kind; CPU time is that of all sides, and of softirq beside them."""
    return cpu_per_kib(run, spenders(run)) if name == CPU else read(run, name)


def within_run(run: Whole, name: str) -> list[float]:
    """The same in each segment of a run, as far as a segment can tell."""
    ran = run.raw.run.segments
    if name == GOODPUT:
        rates = [goodput_gbps([one]) for one in select(ran, "unprobed")]
        return [rate for rate in rates if rate and rate > 0]
    if name != CPU:
        return []
    prices = [
        sum(side.process_cpu_ns for side in one.sides.values()) / moved
        for one in select(ran, "ledger")
        if (moved := segments.delivered_bytes([one]))
    ]
    return [price for price in prices if price > 0]


def exact_rows(before: Counted, after: Counted, *, chosen: bool = False) -> list[Row]:
    """Bytes that each copy moved for each byte of payload, calls for each MiB, and what was flagged."""
    rows = []
    for key in sorted(before.keys() | after.keys()):
        what, side, unit = key
        old, new = before.get(key), after.get(key)
        # A copy that is made elsewhere now is not one more: all of them together decide.
        decides = what in (ALL, "flagged") and not chosen
        base = "itself" if unit == CALLS else "payload"
        empty = Row(what, side, unit, old, new, base)
        if old is None or new is None:
            rows.append(replace(empty, reason="counted in one of the two only"))
        elif old or new:
            # Sums of shares are equal to the last digits only.
            change = round(new - old if base == "payload" else new / old - 1 if old else 1.0, 9)
            known = replace(empty, change=change, low=change, high=change)
            rows.append(replace(known, verdict=judge(change, change, EXACT), decides=decides))
    return rows


def counted(runs: Sequence[Whole]) -> Counted:
    """What was counted for the payload of all runs, where each of them knows it."""
    payload = sum(map(delivered_bytes, runs))
    sums: Counted = {}
    runs_with: dict[tuple[str, str, str], int] = {}
    for row in (row for run in runs for row in run.derived.ledger if row.account in COPIES):
        for unit, value, method, each in (
            (BYTES, row.bytes, row.bytes_method, 1),
            (CALLS, row.calls, row.calls_method, 1 << 20),
        ):
            # On a row of another context the bytes are null: they stand on the row at home, once.
            if value is not None and method != "scaled" and payload:
                key = (row.account, row.side, unit)
                sums[key] = sums.get(key, 0.0) + value * each / payload
                runs_with[key] = runs_with.get(key, 0) + 1
    for unit in (BYTES, CALLS):
        # How many calls the receiving side needs depends on how much has come when it asks.
        parts = [key for key in sums if key[2] == unit and (unit == BYTES or key[1] != "receiver")]
        if parts:
            sums[ALL, "", unit] = sum(sums[key] for key in parts)
            runs_with[ALL, "", unit] = min(runs_with[key] for key in parts)
    made = {key: value for key, value in sums.items() if runs_with[key] == len(runs)}
    sends = [run.derived.zerocopy for run in runs if run.derived.zerocopy]
    completions = sum(one.completions or 0 for one in sends)
    if completions:
        side = "sender" if runs[0].raw.target is None else "target"
        made["flagged", side, SENDS] = sum(one.copied or 0 for one in sends) / completions
    return made


def find_appeared(before: Counted, after: Counted) -> list[Appeared]:
    """Copies that nobody asked for: none before, more than EXACT after."""
    old, new = (
        {what: n for (what, _, unit), n in table.items() if unit != CALLS} for table in (before, after)
    )
    return [
        Appeared(name, 0.0, new[name]) for name in HIDDEN if not old.get(name) and new.get(name, 0.0) > EXACT
    ]


def cost_rows(before: Sequence[Whole], after: Sequence[Whole], how: How) -> list[Row]:
    """CPU time of each copy and of each other work, dearest first; a change is a share of all of A.

    Of single runs it has no verdict: that says nothing of run-to-run noise.
    """
    groups = (before, after)
    spent = [read_metric(run, CPU) for run in before]
    whole = [one for one in spent if not isinstance(one, Missing) and one > 0]
    tables = [[costs(run) for run in runs] for runs in groups]
    keys = {key for group in tables for table in group for key in table}
    if len(whole) < len(before):
        return []
    threshold = how.threshold(CPU, (len(before), len(after)))
    level = 1 - (1 - how.level) / max(1, len(keys))
    all_time = fmean(whole)
    rows = []
    for key in keys:
        # A row that a run does not have is 0 there: its side was sampled, and nothing of it was seen.
        old, new = ([table.get(key, 0.0) for table in group] for group in tables)
        found = stats.difference_of(old, new, paired=how.paired, level=how.level)
        change = found.value / all_time
        row = Row(*key, "ns/KiB", fmean(old), fmean(new), "cpu", change, threshold=threshold)
        if found.ends is not None:
            low, high = (end / all_time for end in found.ends)
            row = replace(row, low=low, high=high, verdict=judge(low, high, threshold))
        if wide := stats.difference_of(old, new, paired=how.paired, level=level).ends:
            low, high = (end / all_time for end in wide)
            row = replace(row, sure=judge(low, high, threshold) in (WORSE, BETTER))
        rows.append(row)
    return sorted(rows, key=lambda row: (-max(row.before or 0, row.after or 0), row.what))


def costs(run: Whole) -> dict[tuple[str, str | None], float]:
    """Copy or other work -> ns per KiB, of all sides and contexts; but what a relay is copied is not the
    receiver's."""
    sums: dict[tuple[str, str | None], float] = {}
    for (what, side, _), price in row_costs(run).items():
        key = (what, side if (what, side) == ("copy_out", "sender") else None)
        sums[key] = sums.get(key, 0.0) + price
    return sums

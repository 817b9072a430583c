# SPDX-License-Identifier: GPL-2.0-only
"""A setting measured before and after a change: differences, verdicts, and new late or hidden copies. Pure.

The verdict of a time depends on its interval. A time is worse if the whole interval lies beyond the
threshold: THRESHOLD, or the difference of identical runs on this host if that is larger. The verdict of an
exact count depends on its value.

A setting has about twenty rows. With a 95 % interval for each row, a row of identical runs would often seem
worse. Therefore only goodput, round trips, total CPU time and counts determine the verdict of a setting. All
other rows show where the CPU time went.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, geometric_mean

from copyscope.base import stats
from copyscope.base.stats import Missing
from copyscope.judge.estimates import row_costs
from copyscope.judge.metrics import METRICS, Scalar, Value, cpu_per_kib, cpu_time_rows, delivered_bytes, read
from copyscope.record.run import Run
from copyscope.record.segments import cpu_ns_per_byte, goodput_gbps, select
from copyscope.taxonomy.accounts import LATE

# Minimum relative change of a time that counts as a difference.
THRESHOLD = 0.02
# Relative change that runs_needed() plans for, and the probability that the planned runs find the change.
WANTED_CHANGE, POWER = 0.05, 0.9
# Maximum logarithm whose exponential is in the range of a float: e^700 is about 10^304.
LARGEST_LOG = 700.0
# Minimum change of an exact count that is a difference, as a share of the payload.
EXACT_THRESHOLD = 0.01
WORSE, BETTER, SAME, UNSURE = "worse", "better", "no difference", "not clear"
# Verdict of a row that lacks the values for a verdict.
UNKNOWN = "n/a"
# Late and hidden copies, and `flagged`: zero-copy sends that the kernel reported as copied.
UNWANTED_COPIES = (*LATE, "flagged")
# Stage with the CPU time of copyscope's own BPF programs.
OWN_STAGE = "instruments"
GOODPUT, CPU = "goodput_gbps", "cpu_ns_per_kib"
# Labels of the rows of goodput and of CPU time.
GOODPUT_ROW, CPU_ROW = "goodput", "CPU time"
BYTES, CALLS, SENDS = "bytes/B", "calls/MiB", "of sends"
ALL_COPIES = "all copies"
# Key of a setting: names and values of the settings that two groups of runs share.
Key = tuple[tuple[str, Scalar], ...]
# (account, side, unit) -> count divided by the payload, or by the sends.
CopyCounts = dict[tuple[str, str, str], float]
ROUND_TRIPS = ("rtt_p50_us", "rtt_p99_us")
# Maximum factor between the ends of the interval of a ratio. A wider interval says nothing about the change.
SPAN_MAX = 10.0
SPAN_REASON = "the runs differ so much that the interval spans more than a factor of ten: repeat"
SINGLE_RUN_REASON = "one run cannot show run-to-run noise: repeat, or measure it (compare A A)"


@dataclass(frozen=True)
class DifferenceRow:
    """A quantity before and after a change.

    what: name of the quantity: a label of a metric, an account or a stage, or ALL_COPIES
    side: the side where the quantity was counted; for CPU time, set only for the copy to a relay
    before, after: value of the quantity; for times the geometric mean, which agrees with `change`
    base: denominator of `change`: `itself` (the value before), `cpu` (total CPU time before) or `payload`
    change, low, high: the change and its interval, as shares of `base`: 0.05 is 5 %
    decides: True if the row counts in the verdict of the setting
    sure: True for a row of CPU time that differs even at the stricter level that allows for the number of
        rows
    """

    what: str
    side: str | None
    unit: str
    before: float | None = None
    after: float | None = None
    base: str = "itself"
    change: float | None = None
    low: float | None = None
    high: float | None = None
    threshold: float = EXACT_THRESHOLD
    verdict: str = UNKNOWN
    decides: bool = False
    reason: str | None = None
    sure: bool = False

    @property
    def is_unknown(self) -> bool:
        """Return True if the change is unknown, or if its interval was too wide to say anything."""
        return self.change is None or self.reason == SPAN_REASON


@dataclass(frozen=True)
class Appeared:
    """A late or hidden copy that appeared with a change; its shares are of the bytes or of the sends."""

    copy: str
    before: float
    after: float


@dataclass(frozen=True)
class ComparisonOptions:
    """How two groups of runs are compared.

    paired: run N of both groups ran in the same block
    is_choice: True if the user chooses between two strategies, so that a strategy's copies are not a
        regression
    noise: metric -> largest difference of two identical runs on this host, as a share
    level: probability that an interval contains the true value
    """

    paired: bool = False
    is_choice: bool = False
    noise: Mapping[str, float] | None = None
    level: float = stats.LEVEL

    def threshold(self, metric: str, runs: tuple[int, int]) -> float:
        """Return the smallest relative difference of a metric that counts, for means of `runs` runs each.

        The noise of the host is the difference of two single runs, so the noise of means is smaller.
        """
        single = (self.noise or {}).get(metric, 0.0)
        return max(THRESHOLD, single * math.sqrt((1 / runs[0] + 1 / runs[1]) / 2))


@dataclass(frozen=True)
class Difference:
    """All rows of one setting, and `runs`: the numbers of runs before and after the change."""

    setting: dict[str, Scalar]
    runs: tuple[int, int]
    verdict: str
    appeared: tuple[Appeared, ...]
    rows: tuple[DifferenceRow, ...]


def runs_needed(
    rows: Sequence[DifferenceRow], runs: tuple[int, int], options: ComparisonOptions
) -> int | None:
    """Return the number of runs per group that would find a change of WANTED_CHANGE with probability POWER.

    Of goodput and CPU time, those without a clear verdict count, and the one that needs fewer runs gives the
    number. Return None if both are clear, if more runs would not help, if there is no interval, or if the
    noise of this host exceeds the change.

    Half the width of an interval is a quantile times the standard error of the mean, which falls with the
    square root of the number of runs.
    """
    quantile = stats.normal_quantile(options.level) + stats.normal_quantile(2 * POWER - 1)
    counts = []
    for row in rows if min(runs) > 1 else ():
        margin = math.log1p(WANTED_CHANGE) - math.log1p(row.threshold)
        if row.what not in (GOODPUT_ROW, CPU_ROW) or row.verdict != UNSURE or margin <= 0:
            continue
        if row.low is not None and row.high is not None:
            half = (math.log1p(row.high) - math.log1p(row.low)) / 2
            error = half / stats.student_quantile(options.level, min(runs) - 1)
            counts.append(math.ceil(min(runs) * (quantile * error / margin) ** 2))
    return next((count for count in sorted(counts) if count > min(runs)), None)


def judge_change(low: float, high: float, threshold: float, metric: str = CPU) -> str:
    """Return the verdict on an interval. Lower goodput is worse, as is a higher value of any other metric."""
    if metric == GOODPUT:
        low, high = -high, -low
    if low > threshold:
        return WORSE
    if high < -threshold:
        return BETTER
    return SAME if -threshold < low and high < threshold else UNSURE


def compare(
    before: Sequence[Run], after: Sequence[Run], options: ComparisonOptions, setting: Key = ()
) -> Difference:
    """Compare valid runs of one setting, at least one before and one after."""
    metric_names = (GOODPUT, CPU, *ROUND_TRIPS)
    rows = [row for name in metric_names if (row := metric_row(before, after, name, options))]
    counts = count_copies(before), count_copies(after)
    rows += exact_rows(*counts, is_choice=options.is_choice)
    rows += cost_rows(before, after, options)
    appeared = tuple(find_appeared(*counts))
    verdict = WORSE if appeared and not options.is_choice else verdict_of(rows)
    return Difference(dict(setting), (len(before), len(after)), verdict, appeared, tuple(rows))


def verdict_of(rows: Sequence[DifferenceRow]) -> str:
    """Return the verdict of the rows marked `decides`: WORSE if even a single one is worse."""
    verdicts = {UNSURE if row.verdict == UNKNOWN else row.verdict for row in rows if row.decides}
    return next((verdict for verdict in (WORSE, UNSURE, BETTER) if verdict in verdicts), SAME)


def metric_row(
    before: Sequence[Run], after: Sequence[Run], name: str, options: ComparisonOptions
) -> DifferenceRow | None:
    """Compare a metric over all runs. Return None for round trips if no run has any."""
    readings = [[read_metric(run, name) for run in runs] for runs in (before, after)]
    values = [
        [reading for reading in group if not isinstance(reading, Missing) and reading > 0]
        for group in readings
    ]
    if name in ROUND_TRIPS and not any(values):
        return None
    missing = (reading for group in readings for reading in group if isinstance(reading, Missing))
    reason = next((reading.reason for reading in missing), None)
    threshold = options.threshold(name, (len(before), len(after)))
    label = {GOODPUT: GOODPUT_ROW, CPU: CPU_ROW}.get(name, name.removesuffix("_us"))
    unit = METRICS[name].unit if name in METRICS else "ns/KiB"
    # The 99th percentile of a short run depends on a few requests only, so it does not decide.
    decides = name != "rtt_p99_us"
    row = DifferenceRow(label, None, unit, threshold=threshold, decides=decides, reason=reason)
    if len(values[0]) < len(before) or len(values[1]) < len(after):
        return replace(row, reason=reason or "no ratio, because a value is zero")
    row = replace(row, before=geometric_mean(values[0]), after=geometric_mean(values[1]))
    single_runs = len(before) == len(after) == 1
    samples = [segment_values(runs[0], name) for runs in (before, after)] if single_runs else values
    if single_runs and min(map(len, samples)) < 2:
        samples = values
    logs = [[math.log(value) for value in group] for group in samples]
    difference = stats.difference_of(*logs, paired=options.paired and not single_runs, level=options.level)
    # For single runs, the segments give the width of the interval, and the whole run gives its centre.
    shift = math.log(values[1][0] / values[0][0]) - difference.value if single_runs else 0.0
    row = replace(row, change=share_from_log(difference.value + shift))
    if difference.ends is None:
        return replace(row, reason=SINGLE_RUN_REASON)
    low, high = (share_from_log(end + shift) for end in difference.ends)
    row = judged(row, low, high, name)
    if single_runs and options.noise is None and not row.is_unknown:
        return replace(row, verdict=UNKNOWN, reason=SINGLE_RUN_REASON)
    return row


def judged(row: DifferenceRow, low: float, high: float, metric: str) -> DifferenceRow:
    """Return a row with its interval and verdict, or with SPAN_REASON if the interval is too wide.

    low, high: ends of the interval, as shares of the value before
    """
    if 1 + high > SPAN_MAX * (1 + low):
        return replace(row, reason=SPAN_REASON)
    return replace(row, low=low, high=high, verdict=judge_change(low, high, row.threshold, metric))


def share_from_log(log_ratio: float) -> float:
    """Return a change as a share, from the logarithm of the ratio after/before."""
    return math.expm1(min(log_ratio, LARGEST_LOG))


def read_metric(run: Run, name: str) -> Value:
    """Return a metric of a run of our own traffic or of a watched program.

    CPU time includes all processes and the softirq work done for the run but charged to other tasks. It
    excludes copyscope's own BPF programs, whose time depends on the instruments of the run.
    """
    if name != CPU:
        return read(run, name)
    cost = cpu_per_kib(run, cpu_time_rows(run))
    if isinstance(cost, Missing):
        return cost
    return cost - sum(own for (category, _, _), own in row_costs(run).items() if category == OWN_STAGE)


def segment_values(run: Run, name: str) -> list[float]:
    """Return goodput or CPU time of each segment of a run. Other metrics exist only for whole runs."""
    run_segments = run.raw.run.segments
    if name == GOODPUT:
        rates = [goodput_gbps([segment]) for segment in select(run_segments, "unprobed")]
        return [rate for rate in rates if rate and rate > 0]
    if name != CPU:
        return []
    return [cost for cost in cpu_ns_per_byte(select(run_segments, "ledger")) if cost > 0]


def exact_rows(before: CopyCounts, after: CopyCounts, *, is_choice: bool = False) -> list[DifferenceRow]:
    """Compare counts: bytes of each copy per byte of payload, calls per MiB, and flagged sends."""
    rows = []
    for key in sorted(before.keys() | after.keys()):
        name, side, unit = key
        old, new = before.get(key), after.get(key)
        # A copy may move from one account to another. Therefore only the sum of all copies decides.
        decides = name in (ALL_COPIES, "flagged") and not is_choice
        base = "itself" if unit == CALLS else "payload"
        row = DifferenceRow(name, side, unit, old, new, base)
        if old is None or new is None:
            rows.append(replace(row, reason="counted in only one of the two groups"))
        elif old or new:
            # Rounded, because equal sums of shares may differ in their last digits.
            change = round(new - old if base == "payload" else new / old - 1 if old else 1.0, 9)
            row = replace(row, change=change, low=change, high=change, decides=decides)
            rows.append(replace(row, verdict=judge_change(change, change, EXACT_THRESHOLD)))
    return rows


def count_copies(runs: Sequence[Run]) -> CopyCounts:
    """Return the counts of all runs together, per payload or send, for accounts that every run counted."""
    payload_bytes = sum(map(delivered_bytes, runs))
    counts: CopyCounts = {}
    runs_with: dict[tuple[str, str, str], int] = {}
    for row in (row for run in runs for row in run.derived.ledger if row.is_plain_copy):
        for unit, count, method, per_bytes in (
            (BYTES, row.bytes, row.bytes_method, 1),
            (CALLS, row.calls, row.calls_method, 1 << 20),
        ):
            # Bytes appear on a single row of an account. Rows of the account in further contexts have null.
            if count is not None and method != "scaled" and payload_bytes:
                key = (row.account, row.side, unit)
                counts[key] = counts.get(key, 0.0) + count * per_bytes / payload_bytes
                runs_with[key] = runs_with.get(key, 0) + 1
    for unit in (BYTES, CALLS):
        # The number of receive calls is left out, because it depends on the bytes that arrive before each
        # call.
        keys = [key for key in counts if key[2] == unit and (unit == BYTES or key[1] != "receiver")]
        if keys:
            counts[ALL_COPIES, "", unit] = sum(counts[key] for key in keys)
            runs_with[ALL_COPIES, "", unit] = min(runs_with[key] for key in keys)
    counts = {key: count for key, count in counts.items() if runs_with[key] == len(runs)}
    sends = [run.derived.zerocopy for run in runs if run.derived.zerocopy]
    completions = sum(zerocopy.completions or 0 for zerocopy in sends)
    if completions:
        side = "sender" if runs[0].raw.target is None else "target"
        counts["flagged", side, SENDS] = sum(zerocopy.copied or 0 for zerocopy in sends) / completions
    return counts


def find_appeared(before: CopyCounts, after: CopyCounts) -> list[Appeared]:
    """Return the unwanted copies that were absent before, and exceed EXACT_THRESHOLD after the change."""
    old, new = (
        {name: count for (name, _, unit), count in counts.items() if unit != CALLS}
        for counts in (before, after)
    )
    return [
        Appeared(name, 0.0, new[name])
        for name in UNWANTED_COPIES
        if not old.get(name) and new.get(name, 0.0) > EXACT_THRESHOLD
    ]


def cost_rows(before: Sequence[Run], after: Sequence[Run], options: ComparisonOptions) -> list[DifferenceRow]:
    """Compare the CPU time of each copy and stage, the most expensive first.

    Changes are shares of the total CPU time before the change. Single runs have no verdict, because
    they do not show run-to-run noise.
    """
    readings = [read_metric(run, CPU) for run in before]
    totals = [reading for reading in readings if not isinstance(reading, Missing) and reading > 0]
    tables = [[work_costs(run) for run in runs] for runs in (before, after)]
    keys = {key for group in tables for table in group for key in table}
    if len(totals) < len(before):
        return []
    threshold = options.threshold(CPU, (len(before), len(after)))
    strict_level = 1 - (1 - options.level) / max(1, len(keys))
    mean_total = fmean(totals)
    rows = []
    for key in keys:
        # A row that is missing in a run costs 0 in that run, because its side was sampled.
        old, new = ([table.get(key, 0.0) for table in group] for group in tables)
        difference = stats.difference_of(old, new, paired=options.paired, level=options.level)
        change = difference.value / mean_total
        row = DifferenceRow(*key, "ns/KiB", fmean(old), fmean(new), "cpu", change, threshold=threshold)
        if difference.ends is not None:
            low, high = (end / mean_total for end in difference.ends)
            row = replace(row, low=low, high=high, verdict=judge_change(low, high, threshold))
        if ends := stats.difference_of(old, new, paired=options.paired, level=strict_level).ends:
            low, high = (end / mean_total for end in ends)
            row = replace(row, sure=judge_change(low, high, threshold) in (WORSE, BETTER))
        rows.append(row)
    return sorted(rows, key=lambda row: (-max(row.before or 0, row.after or 0), row.what))


def work_costs(run: Run) -> dict[tuple[str, str | None], float]:
    """Return the CPU time of each copy and stage in ns per KiB, over all sides and contexts.

    copyscope's own stage is left out.

    The copy to a relay, which is a sender that receives, is kept apart from the copy to the receiver.
    """
    sums: dict[tuple[str, str | None], float] = {}
    for (category, side, _), cost in row_costs(run).items():
        if category == OWN_STAGE:
            continue
        key = (category, side if (category, side) == ("copy_out", "sender") else None)
        sums[key] = sums.get(key, 0.0) + cost
    return sums

"""Seconds of run for a row known to 2 %, and what they are made of. Pure.

A share p of n samples has half an interval of 2 % when n = z^2 (1 - p) / (0.02^2 p). Samples come at
(frequency) x (part of the run that is observed) x (part of that in which the sender is on a CPU) x (part of
the samples that arrive). So the factor between two tools is a product, and every part of it is measured.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from copyscope import stats

WANTED = 0.02
WELL_KNOWN = 0.05
# perf-record(1): 4000 Hz unless -F says otherwise; ours at that frequency, for equal conditions.
PERF_HZ = 4000
DEFAULT_HZ = 199
OURS, OURS_FAST, PERF = f"copyscope ({DEFAULT_HZ} Hz)", f"copyscope at {PERF_HZ} Hz", "perf record -g"
# A fixed count has no control and no segments of calls: the sampler sees all of the run.
OURS_WHOLE = f"copyscope at {PERF_HZ} Hz, --messages"
HZ = {OURS: DEFAULT_HZ, OURS_FAST: PERF_HZ, OURS_WHOLE: PERF_HZ, PERF: PERF_HZ}
Sample = dict[str, Any]


def sample(lasted_s: tuple[float, float, float], hits: int, samples: int, ns_per_kib: float) -> Sample:
    """One point of the plot; without a hit there is no relative width.

    `lasted_s`: the run, the part of it in which samples were taken, and the sender's CPU time in that.
    """
    seconds, observed_s, cpu_s = lasted_s
    found: Sample = {"seconds": seconds, "hits": hits, "samples": samples, "ns_per_kib": ns_per_kib}
    found |= {"observed_s": observed_s, "cpu_s": cpu_s}
    if not hits:
        return {**found, "half_width": None}
    interval = stats.wilson(hits, samples)
    return {**found, "half_width": (interval.high - interval.low) / 2 / (hits / samples)}


def fit(samples: Sequence[Sample]) -> float | None:
    """The half width after one second, c of c / sqrt(seconds): the mean of the logarithms."""
    known = [one for one in samples if one["half_width"]]
    if not known:
        return None
    return math.exp(fmean(math.log(one["half_width"]) + math.log(one["seconds"]) / 2 for one in known))


def needed(samples: Sequence[Sample]) -> tuple[float, float, float] | None:
    """Seconds for WANTED: by the fit, and by the run that says the least and the most."""
    after_1_s = fit(samples)
    if after_1_s is None:
        return None
    each = [one["seconds"] * (one["half_width"] / WANTED) ** 2 for one in samples if one["half_width"]]
    return (after_1_s / WANTED) ** 2, min(each), max(each)


def spread_of_repeats(raw: Sequence[dict[str, Any]]) -> float | None:
    """How much the highest ns/KiB of a tool on a row exceeds its lowest, at most; None without two.

    Of runs that are known well enough, so that this is no sampling error.
    """
    found = [
        max(values) / min(values) - 1
        for part in raw
        for samples in part["samples"].values()
        if len(values := [one["ns_per_kib"] for one in samples if (one["half_width"] or 1) <= WELL_KNOWN]) > 1
    ]
    return max(found, default=None)


def parts(tool: str, samples: Sequence[Sample]) -> dict[str, float] | None:
    """What the samples of a second of run are made of, and the share; None where that was not kept."""
    seconds, observed_s, cpu_s, count, hits = (
        sum(one.get(key, 0) for one in samples)
        for key in ("seconds", "observed_s", "cpu_s", "samples", "hits")
    )
    if not (seconds and observed_s and cpu_s and hits):
        return None
    return {
        "observed": observed_s / seconds,
        "on_cpu": cpu_s / observed_s,
        "arrived": count / cpu_s / HZ[tool],
        "share": hits / count,
    }


def factor(ours: dict[str, float], theirs: dict[str, float]) -> dict[str, float]:
    """How many times as long ours takes at the same frequency, part by part; `all` is their product."""
    made = {key: theirs[key] / ours[key] for key in ("observed", "on_cpu", "arrived")}
    made["share"] = (1 / ours["share"] - 1) / (1 / theirs["share"] - 1)
    return {**made, "all": math.prod(made.values())}


COLUMNS = (
    "account",
    "tool",
    "of the run observed",
    "sender on a CPU meanwhile",
    "samples that were due",
    "samples per second of run",
    "share",
    "ns/KiB (longest run)",
    "seconds for 2 %",
)


def lines(raw: list[dict[str, Any]]) -> list[str]:
    """The section of results/bench/README.md."""
    text = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for part in raw:
        text += [_line(part, tool, samples) for tool, samples in part["samples"].items() if samples]
    note = (
        "In brackets: by each run alone. The interval is the sampling error of the share (Wilson, 95 %), "
        "half of it in percent of the row; it falls with the square root of the time. "
        f"{repeats_text(raw)} Ours gives 0.57 of a run to the ledger and the rest to the control, the "
        "calls and the bytes; with `--messages` it has none of these. Both tools sample both sides. What "
        "each costs the traffic meanwhile is the benchmark `observer`."
    )
    factors = [f"- {line}" for part in raw if (line := _factor_line(part))]
    return [*text, "", note, "", *factors, *([""] if factors else []), PICTURE]


def repeats_text(raw: Sequence[dict[str, Any]]) -> str:
    """What the interval does not hold: that the next run is another one."""
    found = spread_of_repeats(raw)
    if found is None:
        return "How much repeats differ is not known."
    return f"Repeats differ by more: up to {100 * found:.0f} % in ns/KiB, the same tool on the same row."


PICTURE = "![seconds for an interval of 2 %](precision.png)"


def _line(part: dict[str, Any], tool: str, samples: Sequence[Sample]) -> str:
    longest = max(samples, key=lambda one: float(one["seconds"]))
    rate = sum(one["samples"] for one in samples) / sum(one["seconds"] for one in samples)
    share = sum(one["hits"] for one in samples) / max(1, sum(one["samples"] for one in samples))
    found, made = needed(samples), parts(tool, samples)
    known = [f"{100 * made[key]:.0f} %" for key in ("observed", "on_cpu", "arrived")] if made else ["n/a"] * 3
    wanted = "n/a: no sample in it" if found is None else spread(found)
    cells = [*known, f"{rate:.0f}", f"{100 * share:.1f} %", f"{longest['ns_per_kib']:.3g}", wanted]
    return f"| {part['account']} ({part['impl']}) | {tool} | {' | '.join(cells)} |"


def _factor_line(part: dict[str, Any]) -> str | None:
    """Why ours takes longer at the same frequency; None where the parts were not kept."""
    ours, theirs = (parts(tool, part["samples"].get(tool, [])) for tool in (OURS_FAST, PERF))
    if ours is None or theirs is None:
        return None
    made = factor(ours, theirs)
    return (
        f"{part['account']} ({part['impl']}): {OURS_FAST} takes {made['all']:.2f} times as long as {PERF}: "
        f"{made['observed']:.2f} for the part of the run that is observed, {made['on_cpu']:.2f} for the part "
        f"in which the sender was on a CPU, {made['arrived']:.2f} for samples that did not arrive, "
        f"{made['share']:.2f} for the share itself."
    )


def spread(found: tuple[float, float, float]) -> str:
    middle, least, most = map(seconds_text, found)
    return f"{middle} ({least} to {most})"


def seconds_text(seconds: float) -> str:
    """Two digits are all that is known."""
    return f"{float(f'{seconds:.2g}'):,.0f} s" if seconds >= 10 else f"{seconds:.2g} s"

"""The exact tier beside the sampled one, of the same run: shares of kernel time, and whether they agree.

Pure. Both are shares of a side's time in the kernel. The exact tier knows that of tcp_sendmsg, tcp_recvmsg,
network softirqs and the system call around them; the sampler takes what is not in user mode. What comes
before and after the call's entry function is in the second only; coverage() says how much.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from copyscope import stats
from copyscope.ledger.attribution import SideTime, as_one, side_times, time_event, weights_of
from copyscope.ledger.cpu_time import excludes_softirq
from copyscope.ledger.functions import exact_rows
from copyscope.record.program.raw import RawProgramRun
from copyscope.record.raw import Measured
from copyscope.record.segments import processes, select, total

# What both tiers see as the same thing. The rest is cut along other lines: the sampler names the innermost
# function (memory for an skb), the exact tier the hooked function around it (the making of that skb).
COMPARED = ("copy_in", "pin", "deferred", "silent", "completion", "copy_out")
REST = "the rest"
# How functions are hooked by programs during which no sample is taken.
PROBED = ("kprobe", "kprobe.multi", "call-site")
Key = tuple[str, str, str]  # side, context, name


def compare_tiers(raw: Measured) -> list[dict[str, Any]]:
    """One row per side, context and account: the shares with their intervals, the ratio, whether they agree.

    sampled: in the ledger segments, where no function is hooked; ratio: exact over that. beside: in the
    segments of the exact tier itself; None where nothing was sampled there. inside: whether the exact share
    lies in the interval of the samples of the same work, where there are any. Empty when one of the tiers has
    nothing to say: why_not() says why.
    """
    if why_not(raw):
        return []
    exact, spread = _exact(raw)
    times = side_times(raw)
    times_beside = _times_beside(raw, times)
    hits, beside = _hits(times), _hits(times_beside)
    names = [*COMPARED, REST]
    rows = []
    for side in (*processes(raw), "other"):
        exact_ns = sum(ns for key, ns in exact.items() if key[0] == side)
        samples = sum(count for key, count in hits.items() if key[0] == side)
        if not exact_ns or not samples:
            continue
        same = sum(count for key, count in beside.items() if key[0] == side)
        keys = {key for key in (*exact, *hits, *beside) if key[0] == side}
        for key in sorted(keys, key=lambda key: (names.index(key[2]), key[1])):
            found = _interval(times[side], key, hits[key], samples)
            share, half = exact[key] / exact_ns, spread[key] / exact_ns
            sampled = hits[key] / samples
            of_same = _interval(times_beside[side], key, beside[key], same) if same else None
            judge = of_same or found
            rows.append(
                {
                    "side": side,
                    "context": key[1],
                    "name": key[2],
                    "exact_share": share,
                    "sampled_share": sampled,
                    "sampled_low": found.low,
                    "sampled_high": found.high,
                    "ratio": share / sampled if sampled else None,
                    "beside_share": beside[key] / same if same else None,
                    "beside_low": of_same.low if of_same else None,
                    "beside_high": of_same.high if of_same else None,
                    "inside": share + half >= judge.low and share - half <= judge.high,
                }
            )
    return rows


def why_not(raw: Measured) -> str | None:
    """Why the tiers of this run cannot be compared; None when they can."""
    if raw.functions is None or not exact_rows(raw):
        reasons = {
            f"{hook.symbol}: {hook.reason}"
            for hook in raw.hooks
            if hook.instrument == "functions" and hook.id in ("send", "receive") and hook.reason
        }
        return "no function was hooked: " + ("; ".join(sorted(reasons)) or "the hooks saw no send")
    if not any(root.timed_calls for root in raw.functions.roots):
        return "no send was timed: run longer or use --gate 1"
    times = side_times(raw)
    if not any(time.weights.all_samples for time in times.values()):
        return next((time.reason for time in times.values() if time.reason), "the sampler took no sample")
    return None


def coverage(raw: Measured) -> list[dict[str, Any]]:
    """One row per process: time inside the roots of the functions segments over its kernel time there.

    The kernel time is the CPU clock of these segments, less the sampled share of user mode; the interval is
    that of this share. Below 1 by the way to the hooks and back, and by what else the kernel does.
    """
    if why_not(raw):
        return []
    rows = []
    for side in processes(raw):
        contexts: dict[str, int] = defaultdict(int)
        for (_, _, context), samples in side_times(raw)[side].weights.samples.items():
            contexts[context] += samples
        if excludes_softirq(raw, side):
            contexts.pop("softirq", None)
        clock_ns = total(select(raw.run.segments, "functions"), side, "process_cpu_ns")
        samples = sum(contexts.values())
        if not clock_ns or not samples:
            continue
        inside_ns = sum(
            row.cpu_ns or 0
            for row in exact_rows(raw)
            if row.side == side and (row.context == "process" or "softirq" in contexts)
        )
        kernel = stats.wilson(samples - contexts["user"], samples)
        share = 1 - contexts["user"] / samples
        rows.append(
            {
                "side": side,
                "inside_ns": inside_ns,
                "kernel_ns": round(clock_ns * share),
                "ratio": inside_ns / (clock_ns * share) if share else None,
                "low": inside_ns / (clock_ns * kernel.high),
                "high": inside_ns / (clock_ns * kernel.low) if kernel.low else None,
            }
        )
    return rows


def seen_beside(raw: Measured) -> list[dict[str, Any]]:
    """One row per process: what the timer saw of the time in the kernel while functions were hooked.

    Samples times their period over the exact time of the same segments. Below 1 by what the sampler is blind
    for (a task that is being switched in has no timer yet), above by what is in no root. Empty where the
    samples are not of a timer, or none were taken there.
    """
    if "cpu-clock" not in (time_event(raw.samples) or ()) or not raw.samples_beside:
        return []
    rows = []
    for side in processes(raw):
        weights = weights_of(raw.sampler, raw.samples_beside, side, ("cpu-clock",)).weight
        sampled_ns = sum(ns for (_, _, context), ns in weights.items() if context != "user")
        exact_ns = sum(row.cpu_ns or 0 for row in exact_rows(raw) if row.side == side)
        if exact_ns:
            of_side = {"side": side, "sampled_ns": round(sampled_ns), "exact_ns": round(exact_ns)}
            rows.append({**of_side, "ratio": sampled_ns / exact_ns})
    return rows


def inside_calls(raw: Measured) -> list[dict[str, Any]]:
    """One row per process: time in the roots and the calls around them over that in its calls, same segments.

    The second is of other programs, with a clock of their own: from entry to exit of the system call, on
    the CPU, softirq work on top included. Both clocks stop where the task leaves its CPU. Empty where the two
    were not in the same segments (--compare-tiers puts them there), or where one of them only counted.
    """
    if raw.functions is None or isinstance(raw, RawProgramRun):
        return []
    hooked, timed = select(raw.run.segments, "functions"), select(raw.run.segments, "calls")
    if not hooked or hooked != timed:
        return []
    rows = []
    for side in processes(raw):
        calls = [row for row in raw.calls if row.side == side and row.calls]
        inside = [row.cpu_ns for row in exact_rows(raw) if row.side == side]
        times = [ns for row in calls for ns in (row.on_cpu_ns, row.softirq_ns)]
        if not times or None in times or not inside or None in inside:
            continue
        calls_ns, inside_ns = sum(ns or 0 for ns in times), sum(ns or 0 for ns in inside)
        made = sum(row.calls for row in calls)
        rows.append(
            {
                "side": side,
                "inside_ns": inside_ns,
                "calls_ns": calls_ns,
                "calls": made,
                "ratio": inside_ns / calls_ns if calls_ns else None,
                "rest_ns_per_call": (calls_ns - inside_ns) / made,
            }
        )
    return rows


def _exact(raw: Measured) -> tuple[dict[Key, float], dict[Key, float]]:
    """ns and half the interval of each side, context and name."""
    total: dict[Key, float] = defaultdict(float)
    half: dict[Key, float] = defaultdict(float)
    for row in exact_rows(raw):
        if row.cpu_ns is None:
            continue
        key = (row.side, row.context, _name(row.ledger_name))
        total[key] += row.cpu_ns
        if row.ci:
            half[key] += (row.ci.high_ns - row.ci.low_ns) / 2
    return total, half


def _interval(time: SideTime, key: Key, hits: int, samples: int) -> stats.Interval:
    """Of a share of the samples in the kernel."""
    of_key = [row for row in time.weights.samples if (row[2], _name(row[1])) == key[1:]]
    return stats.wilson(hits, samples, as_one=as_one(time, of_key))


def _hits(times: Mapping[str, SideTime]) -> dict[Key, int]:
    """Samples in the kernel by side, context and name."""
    hits: dict[Key, int] = defaultdict(int)
    for side, time in times.items():
        for (_, category, context), samples in time.weights.samples.items():
            if context != "user":
                hits[side, context, _name(category)] += samples
    return hits


def _times_beside(raw: Measured, times: dict[str, SideTime]) -> dict[str, SideTime]:
    """The samples that were taken while functions were hooked; empty where none were.

    In a run of one segment those of the ledger are. Where a function is probed, a sample that falls into a
    program is lost (bpf_prog_active), so there they are shares of something else.
    """
    if any(hook.instrument == "functions" and hook.how in PROBED for hook in raw.hooks):
        return {}
    if select(raw.run.segments, "functions") == select(raw.run.segments, "ledger"):
        return times
    names, rows = time_event(raw.samples) or (), raw.samples_beside or []
    return {
        side: replace(time, weights=weights_of(raw.sampler, rows, side, names))
        for side, time in times.items()
    }


def _name(category: str) -> str:
    return category if category in COMPARED else REST

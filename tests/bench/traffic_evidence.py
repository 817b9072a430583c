"""Where the traffic is below a goal: what the samples of the same run say about the cause. Pure."""

from typing import Any

from conclusions import cell, comparison
from samples import median

Samples = list[dict[str, float]]
# A difference of less than this part of the peer's cost has no cause to look for.
HARDLY = 0.01
HEAD = (
    "run",
    "cell",
    "contest",
    "goodput",
    "goal",
    "busier side",
    "its CPU time, ns/KiB",
    "the other side's, ns/KiB",
    "sleeps a message, sender",
    "receiver",
    "of the difference by wake-ups",
    "bare to this peer",
    "not woken, to this peer",
)
NOTE = """\
Each contest whose median is below its goal in one of the runs, with what both runs say of it; "a, b" is ours
and the peer's. Busier is the side that is on the CPU for more of the time, ours: what it spends limits the
goodput. A side that wakes the other does it on its own time, so of the difference in its cost, the part by
wake-ups is (how much more often the other side sleeps) x (what one wake-up costs). The last columns are what
the bare loop, and a receiver that looks by the clock, reach of the same peer.
"""


def behind(result: dict[str, Any], earlier: dict[str, Any] | None) -> list[str]:
    """The table; nothing where all medians reach their goals."""
    runs = {"this": result} | ({"earlier": earlier} if earlier else {})
    below = {
        one.row
        for run in runs.values()
        for made in run["comparisons"]
        if (one := comparison("traffic", made)).goal is not None and one.ratio < one.goal
    }
    if not below:
        return []
    lines = [
        line(name, run, made)
        for made_first in result["comparisons"]
        if comparison("traffic", made_first).row in below
        for name, run in runs.items()
        for made in run["comparisons"]
        if comparison("traffic", made).row == comparison("traffic", made_first).row
    ]
    costs = [f"{name} run: {wake_text(run)}" for name, run in runs.items()]
    head = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    return ["", NOTE, f"One wake-up: {'; '.join(costs)}.", "", *head, *lines]


def line(name: str, run: dict[str, Any], made: dict[str, Any]) -> str:
    samples = next(raw["samples"] for raw in run["raw"] if factors(raw) == made["factors"])
    ours, peer = samples[made["ours"]], samples[made["peer"]]
    one = comparison("traffic", made)
    side, other = sorted(("sender", "receiver"), key=lambda side: -busy(ours, side))
    cells = [
        name,
        cell(made["factors"]),
        f"{made['ours']}, {made['peer']}",
        f"{one.ratio:.3f} ({one.low:.3f} to {one.high:.3f})",
        f"{one.goal:g}, {one.reached}",
        f"{side}: {busy(ours, side):.0%}, {busy(peer, side):.0%}",
        both(ours, peer, f"{side}_cpu_ns_per_kib", 0),
        both(ours, peer, f"{other}_cpu_ns_per_kib", 0),
        both(ours, peer, "sender_sleeps_per_message", 3),
        both(ours, peer, "receiver_sleeps_per_message", 3),
        by_wake_ups(ours, peer, (side, other), made["factors"]["size_bytes"], wake_ns(run)),
        others(run, made, "bare"),
        others(run, made, made["ours"].replace("_loop", "_coalesced")),
    ]
    return f"| {' | '.join(cells)} |"


def factors(raw: dict[str, Any]) -> dict[str, Any]:
    return {key: raw[key] for key in ("size_bytes", "connections") if key in raw}


def typical(samples: Samples, key: str) -> float:
    return median([sample[key] for sample in samples])


def both(ours: Samples, peer: Samples, key: str, digits: int) -> str:
    return ", ".join(f"{typical(samples, key):.{digits}f}" for samples in (ours, peer))


def busy(samples: Samples, side: str) -> float:
    """On the CPU for so much of the time: ns per KiB times Gb/s, at 8192 bits per KiB."""
    return median([sample[f"{side}_cpu_ns_per_kib"] * sample["gbps"] / 8192 for sample in samples])


def wake_ns(run: dict[str, Any]) -> float | None:
    """What one wake-up costs who wakes, as the run itself measured it; older results did not."""
    return next((median(raw["wake_ups"]) for raw in run["raw"] if "wake_ups" in raw), None)


def wake_text(run: dict[str, Any]) -> str:
    values = next((raw["wake_ups"] for raw in run["raw"] if "wake_ups" in raw), None)
    if values is None:
        return "its cost was not measured"
    ends = f"{min(values) / 1e3:.1f} to {max(values) / 1e3:.1f}"
    return f"{median(values) / 1e3:.1f} us ({ends} in {len(values)} rounds)"


def by_wake_ups(
    ours: Samples, peer: Samples, sides: tuple[str, str], size_bytes: int, one_ns: float | None
) -> str:
    """ns per KiB that the busier side spends more than the peer's, and how much of it are wake-ups."""
    side, other = sides
    cost, sleeps = (
        typical(ours, key) - typical(peer, key)
        for key in (f"{side}_cpu_ns_per_kib", f"{other}_sleeps_per_message")
    )
    if cost < HARDLY * typical(peer, f"{side}_cpu_ns_per_kib"):
        return f"{cost:+.0f}: no dearer"
    if one_ns is None:
        return f"{cost:+.0f}: unknown"
    waking = one_ns * sleeps / (size_bytes / 1024)
    share = "none" if waking <= 0 else "all" if waking >= cost else f"{waking / cost:.0%}"
    return f"{cost:+.0f}: {waking:+.0f}, {share}"


def others(run: dict[str, Any], made: dict[str, Any], name: str) -> str:
    """What another program reaches against the same peer."""
    if name in (made["ours"], made["peer"]):
        return ""
    wanted = (name, made["peer"], "gbps", made["factors"])
    for one in run["comparisons"]:
        if (one["ours"], one["peer"], one["quantity"], one["factors"]) == wanted:
            return f"{one['ratio']:.3f} ({one['low']:.3f} to {one['high']:.3f})"
    return ""

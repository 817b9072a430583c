"""The results of all benchmarks as one Markdown text."""

import importlib
import json
from pathlib import Path
from typing import Any

from agreement import agreement, lines
from hooks_table import costs
from traffic_evidence import behind

WHAT = {
    "gbps": "goodput",
    "sender_cpu_ns_per_kib": "sender's CPU time per KiB",
    "receiver_cpu_ns_per_kib": "receiver's CPU time per KiB",
    "cpu_ns_per_kib": "both sides' CPU time per KiB",
}

CONTESTS = {
    "traffic": (
        "Sent over veth, one processor for each side: one buffer again and again, in one call a message, "
        "with TCP_NODELAY, the route's congestion control and the kernel's buffer sizes. `one_copy` and "
        "`bare` have a thread for each connection on both sides, and block in recv(). `one_copy_loop` "
        "and `sendfile_loop` have one thread on each side for all connections, as iperf3 has "
        "(`--sender loop`, `--receiver poll`). `one_copy_coalesced` and `sendfile_coalesced` are the same, "
        "but their receiver, when nothing is there, looks again after 20 us instead of being woken "
        "(`--coalesce 20`). `iperf3_sendfile` is `iperf3 -Z`; its file and that of `sendfile` lie in the "
        "same directory. CPU time is that of a program's whole life.\n"
    )
}


def size(count: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count // factor} {unit}"
    return f"{count} B"


def document(directory: Path, planned_s: dict[str, int]) -> str:
    """README.md: every benchmark, how long each took, and whether the run before came to the same."""
    paths = [directory / f"{name}.json" for name in planned_s]
    parts = [table(paths), *times(paths, planned_s)]
    known = [path for path in paths if path.exists() and (directory / "earlier" / path.name).exists()]
    found, when = [], {}
    for path in known:
        now, earlier = (json.loads(one.read_text(encoding="utf-8")) for one in (path, _earlier(path)))
        both = agreement(path.stem, now, earlier)
        if both is not None:
            found.append(both)
            when[path.stem] = run_name(now), run_name(earlier)
    if found:
        parts += ["## The same bench twice", "", *lines(found, when), ""]
    return "\n".join(parts)


def _earlier(path: Path) -> Path:
    return path.parent / "earlier" / path.name


def run_name(result: dict[str, Any]) -> str:
    """When and of which commit; results that are older than these keys do not say."""
    return f"{result.get('started', 'time not kept')[:16]}, {result.get('git') or 'commit not known'}"


def times(paths: list[Path], planned_s: dict[str, int]) -> list[str]:
    """How long each was meant to take, and took."""
    rows, whole = [], 0.0
    for path in paths:
        used_s = json.loads(path.read_text(encoding="utf-8")).get("used_s") if path.exists() else None
        if used_s is not None:
            whole += used_s
            rows.append(f"| {path.stem} | {planned_s[path.stem]} s | {used_s:.0f} s |")
    if not rows:
        return []
    head = ["## How long it takes", "", "| benchmark | planned | used |", "|---|---|---|"]
    return [*head, *rows, "", f"Together {whole / 60:.1f} minutes; at most 15 are meant.", ""]


def table(paths: list[Path]) -> str:
    """One section per benchmark that has results; ratios are ours over the peer's, with 95 % intervals."""
    parts = ["# make bench\n", "Ratios are ours over the peer's, median of pairs, with 95 % intervals.\n"]
    for path in paths:
        if not path.exists():
            continue
        result = json.loads(path.read_text(encoding="utf-8"))
        machine = result["machine"]
        parts.append(f"## {path.stem}\n")
        where = f"{machine['cpu_model']}, {machine['cpus']} CPUs, Linux {machine['kernel']}"
        parts.append(where + (f", under {machine['hypervisor']}" if machine["hypervisor"] else "") + "\n")
        # A benchmark that is no contest has a table of its own.
        own = getattr(importlib.import_module(f"{path.stem}_bench"), "lines", None)
        if own is not None:
            parts += own(result["raw"])
        else:
            contest = path.stem in CONTESTS
            parts += [CONTESTS[path.stem]] if contest else []
            parts += grid(result["comparisons"])
            parts += losses(result["comparisons"])
            parts += failures(result["raw"])
            parts += costs(result["raw"])
            parts += behind(result) if contest else []
        parts.append("")
    return "\n".join(parts)


def grid(comparisons: list[dict[str, Any]]) -> list[str]:
    """One line for each size, number of connections and pair; a column for each quantity."""
    if not comparisons:
        return []
    quantities = list(dict.fromkeys(made["quantity"] for made in comparisons))
    lines: dict[tuple[Any, ...], dict[str, str]] = {}
    for made in comparisons:
        factors = made["factors"]
        key = (size(factors["size_bytes"]), factors.get("connections", 1), made["ours"], made["peer"])
        text = f"{made['ratio']:.3f} ({made['low']:.3f} to {made['high']:.3f})"
        if made["quantity"] == "gbps":
            text += f": {made['ours_median']:.3g} against {made['peer_median']:.3g} Gb/s"
        else:
            text += f": {made['ours_median']:.0f} against {made['peer_median']:.0f} ns"
        lines.setdefault(key, {})[made["quantity"]] = text
    head = ["size", "connections", "ours", "peer", *(WHAT[quantity] for quantity in quantities)]
    rows = [
        [*map(str, key), *(line.get(quantity, "") for quantity in quantities)] for key, line in lines.items()
    ]
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


# Ours, and the peers that give the same information.
SAME_INFORMATION = {
    "ours": ("perf_record", "bpftrace_profile"),
    "ours_calls": ("perf_trace", "bpftrace_calls"),
}


def losses(comparisons: list[dict[str, Any]]) -> list[str]:
    """The goodput that switching on costs: ours beside the best peer with the same information."""
    against_off = [made for made in comparisons if made["peer"] == "off" and made["quantity"] == "gbps"]
    lines = []
    for made in against_off:
        peers = [
            peer
            for peer in against_off
            if peer["factors"] == made["factors"] and peer["ours"] in SAME_INFORMATION.get(made["ours"], ())
        ]
        if not peers:
            continue
        best = max(peers, key=lambda peer: peer["ratio"])
        lines.append(
            f"| {size(made['factors']['size_bytes'])} | {made['ours']} | {percent(made)} "
            f"| {best['ours']} | {percent(best)} | {times_less(made, best)} |"
        )
    if not lines:
        return []
    head = "| size | ours | goodput lost | best peer with the same information | goodput lost | times less |"
    return ["", head, "|---|---|---|---|---|---|", *lines]


def times_less(ours: dict[str, Any], peer: dict[str, Any]) -> str:
    """How many times more the peer loses; at least: its smallest loss over our largest."""
    if ours["high"] >= 1 or peer["high"] >= 1:
        who = [name for name, made in (("ours", ours), ("the peer", peer)) if made["high"] >= 1]
        middle = f"no loss found: {', '.join(who)}"
    else:
        middle = f"{(1 - peer['ratio']) / (1 - ours['ratio']):.1f}"
    if ours["low"] >= 1:
        return middle
    return f"{middle} (at least {max(0.0, (1 - peer['high']) / (1 - ours['low'])):.1f})"


def percent(made: dict[str, Any]) -> str:
    loss, low, high = (100 * (1 - made[key]) for key in ("ratio", "high", "low"))
    return f"{loss:.1f} % ({low:.1f} to {high:.1f})"


def failures(raw: list[dict[str, Any]]) -> list[str]:
    """Who could not run, at which size, and why."""
    lines = [
        f"- {size(item['size_bytes'])}: {name} could not be measured: {reason}"
        for item in raw
        for name, reason in item.get("failed", {}).items()
    ]
    return ["", *lines] if lines else []

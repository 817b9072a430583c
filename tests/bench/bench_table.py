"""The results of all benchmarks as one Markdown text."""

import importlib
import json
from pathlib import Path
from typing import Any

from agreement import agreement, lines
from conclusions import comparison, conclusions, losses_row, size
from hooks_table import costs
from observer_losses import TIMES_LESS, losses, percent
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
        "same directory. CPU time and sleeps are those of a program's whole life less those of a "
        "transfer of one message a connection (median of three): what it takes to start and to end.\n"
    ),
    "observer": (
        "Switched on against switched off, in segments of the same traffic. `ours`, `ours_calls` and "
        "`ours_bytes` are what a default run of tools/profile.py has attached in its three kinds of "
        "segments; the goals are of these. `ours_sampler` and `ours_counters` are what the first is made of; "
        "`ours_calls_untimed` is the second with next to nothing timed in its windows: what stays is "
        "the counting, and the coming and going of hooks.\n"
    ),
}


def document(directory: Path, planned_s: dict[str, int]) -> str:
    """README.md: every benchmark, how long each took, and whether the run before came to the same."""
    paths = [directory / f"{name}.json" for name in planned_s]
    parts = [table(paths), *times(paths, planned_s)]
    found = []
    for path in paths:
        now, earlier = _read(path), _earlier(path)
        both = agreement(path.stem, now, earlier) if now and earlier else None
        found += [both] if both else []
    if found:
        parts += ["## The same bench twice", "", *lines(found), ""]
    return "\n".join(parts)


def _read(path: Path) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return found


def _earlier(path: Path) -> dict[str, Any] | None:
    """The run before, where it is of the same machine: else there is nothing to compare."""
    now, earlier = _read(path), _read(path.parent / "earlier" / path.name)
    return earlier if now and earlier and now["machine"] == earlier["machine"] else None


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
    return [*head, *rows, "", f"Together {whole / 60:.1f} minutes; at most 20 are meant.", ""]


def runs_of(path: Path) -> list[dict[str, Any]]:
    """This run and the one before it, as far as they are there."""
    return [run for run in (_read(path), _earlier(path)) if run]


def table(paths: list[Path]) -> str:
    """One section per benchmark that has results; ratios are ours over the peer's, with 95 % intervals."""
    parts = ["# make bench\n", "Ratios are ours over the peer's, median of pairs, with 95 % intervals.\n"]
    for path in paths:
        result = _read(path)
        if result is None:
            continue
        machine = result["machine"]
        parts.append(f"## {path.stem}\n")
        where = f"{machine['cpu_model']}, {machine['cpus']} CPUs, Linux {machine['kernel']}"
        parts.append(where + (f", under {machine['hypervisor']}" if machine["hypervisor"] else "") + "\n")
        # A benchmark that is no contest has a table of its own.
        own = getattr(importlib.import_module(f"{path.stem}_bench"), "lines", None)
        parts += own(result["raw"]) if own is not None else contest(path.stem, result, _earlier(path))
        parts.append("")
    return "\n".join(parts)


def contest(name: str, result: dict[str, Any], earlier: dict[str, Any] | None) -> list[str]:
    """The comparisons of this run, with what the earlier one says of the same."""
    runs = {"this": result} | ({"earlier": earlier} if earlier else {})
    return [
        *([CONTESTS[name]] if name in CONTESTS else []),
        *grid(name, result["comparisons"], earlier["comparisons"] if earlier else []),
        *lost(runs),
        *failures(runs),
        *verdicts(runs),
        *costs(result["raw"]),
        *(behind(result, earlier) if name == "traffic" else []),
    ]


def grid(name: str, comparisons: list[dict[str, Any]], before: list[dict[str, Any]]) -> list[str]:
    """One line for each size, number of connections and pair; a column for each quantity, and the goals."""
    if not comparisons:
        return []
    quantities = list(dict.fromkeys(made["quantity"] for made in comparisons))
    earlier = {one.row: one.reached for one in (comparison(name, made) for made in before)}
    lines: dict[tuple[Any, ...], dict[str, str]] = {}
    for made in comparisons:
        factors = made["factors"]
        key = (size(factors["size_bytes"]), factors.get("connections", 1), made["ours"], made["peer"])
        text = f"{made['ratio']:.3f} ({made['low']:.3f} to {made['high']:.3f})"
        if made["quantity"] == "gbps":
            text += f": {made['ours_median']:.3g} against {made['peer_median']:.3g} Gb/s"
        else:
            text += f": {made['ours_median']:.0f} against {made['peer_median']:.0f} ns"
        line = lines.setdefault(key, {})
        line[made["quantity"]] = text
        one = comparison(name, made)
        if one.goal is not None:
            line |= {"goal": f"{one.goal:g}", "reached": str(one.reached)}
            line |= {"earlier run": earlier.get(one.row) or "not measured"} if before else {}
    goals = [key for key in ("goal", "reached", "earlier run") if any(key in line for line in lines.values())]
    head = ["size", "connections", "ours", "peer", *(WHAT[quantity] for quantity in quantities), *goals]
    rows = [
        [*map(str, key), *(line.get(column, "") for column in (*quantities, *goals))]
        for key, line in lines.items()
    ]
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def lost(runs: dict[str, dict[str, Any]]) -> list[str]:
    """The goodput that switching on costs: ours beside the best peer with the same information, both runs."""
    lines = []
    for name, run in runs.items():
        reached = {one.row: one.reached for one in conclusions("observer", run)}
        for found in losses(run["comparisons"]):
            lines.append(
                f"| {name} | {size(found.ours['factors']['size_bytes'])} | {found.ours['ours']} "
                f"| {percent(found.ours)} | {found.peer['ours']} | {percent(found.peer)} "
                f"| {found.times_less} | {reached[losses_row(found)]} |"
            )
    if not lines:
        return []
    goal = f"at least {TIMES_LESS} times less: reached"
    columns = ("run", "size", "ours", "goodput lost", "best peer with the same information", "goodput lost")
    head = [*columns, "times less", goal]
    return ["", f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines]


def failures(runs: dict[str, dict[str, Any]]) -> list[str]:
    """Who could not run, at which size, and why."""
    lines = [
        f"- {name} run, {size(item['size_bytes'])}: {who} could not be measured: {reason}"
        for name, run in runs.items()
        for item in run["raw"]
        for who, reason in item.get("failed", {}).items()
    ]
    return ["", *lines] if lines else []


def verdicts(runs: dict[str, dict[str, Any]]) -> list[str]:
    """What a run says of itself in a sentence."""
    lines = [
        f"- {name} run: {item['verdict']}"
        for name, run in runs.items()
        for item in run["raw"]
        if "verdict" in item
    ]
    return ["", *lines] if lines else []

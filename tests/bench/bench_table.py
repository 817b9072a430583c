# SPDX-License-Identifier: GPL-2.0-only
"""The results of all benchmarks as one Markdown text: results/bench/README.md."""

import importlib
import json
from pathlib import Path
from typing import Any

from conclusions import goal_of, reached, size

WHAT = {
    "gbps": "goodput (Gb/s)",
    "sender_cpu_ns_per_kib": "sender's CPU time (ns/KiB)",
    "receiver_cpu_ns_per_kib": "receiver's CPU time (ns/KiB)",
    "cpu_ns_per_kib": "both sides' CPU time (ns/KiB)",
}
INTRODUCTION = """# make bench

This page says how fast copyscope's traffic programs are, and what its instruments cost, compared
with other tools. A cell of a table has the ratio of copyscope to the other tool, the median of
pairs of runs, with its 95 % interval; then both medians. Goodput compared with "off" is shown as a
loss. Bold cells missed their goal with their whole interval.
"""

CONTESTS = {
    "traffic": """\
Traffic over veth, with a CPU each for sender and receiver. A message is one call that sends the
same buffer again, with TCP_NODELAY, the route's congestion control and the kernel's buffer sizes.

- `one_copy` and `bare` have a thread for each connection at both ends, and block in recv().
- `one_copy_loop` and `sendfile_loop` have one thread at each end for all connections, as iperf3
  has (`--sender loop`, `--receiver poll`).
- `one_copy_coalesced` and `sendfile_coalesced` are the same, but a receiver without data polls
  again after 20 us instead of being woken (`--coalesce 20`).
- `iperf3_sendfile` is `iperf3 -Z`, with its file in the same directory as that of `sendfile`.

CPU time and sleeps are those of the whole program, minus those of a transfer of one message per
connection (median of three), which is the cost of its start and end.
""",
    "uring": """\
As `traffic`, with one connection and one io_uring request at a time. `bare_uring_send` and
`bare_uring_zc` are plain loops of liburing (tests/bench/bare_uring.c). Both zero-copy senders have
16 buffers, and wait for the notification of a buffer before they send it again.
""",
    "observer": """\
Segments with instruments, compared with segments without them, in the same traffic. `ours`,
`ours_calls` and `ours_bytes` are the instruments of the three kinds of segments of a default
`copyscope run`; the first and the last have goals. `ours_sampler` and `ours_counters` are the two
parts of `ours`.
""",
}


def document(directory: Path, names: tuple[str, ...]) -> str:
    """Return the page: a section for each benchmark that has results."""
    parts = [INTRODUCTION]
    for name in names:
        path = directory / f"{name}.json"
        if path.exists():
            parts += [*section(name, json.loads(path.read_text(encoding="utf-8"))), ""]
    return "\n".join(parts)


def section(name: str, result: dict[str, Any]) -> list[str]:
    machine = result["machine"]
    where = f"{machine['cpu_model']}, {machine['cpus']} CPUs, Linux {machine['kernel']}"
    where += f", in a virtual machine (hypervisor: {machine['hypervisor']})" if machine["hypervisor"] else ""
    peers = [f"{peer} {version}" for peer, version in result.get("peers", {}).items() if version]
    about = [where, *peers, result.get("started", "")[:10], result.get("git") or ""]
    # A benchmark without a competitor formats its own table.
    own = getattr(importlib.import_module(f"{name}_bench"), "lines", None)
    body = own(result["raw"]) if own is not None else contest(name, result)
    return [f"## {name}", "", "; ".join(part for part in about if part), "", *body]


def contest(name: str, result: dict[str, Any]) -> list[str]:
    comparisons = result["comparisons"]
    text = [CONTESTS[name]] if name in CONTESTS else []
    for quantity in dict.fromkeys(comparison["quantity"] for comparison in comparisons):
        text += [
            *table(name, [comparison for comparison in comparisons if comparison["quantity"] == quantity]),
            "",
        ]
    return [*text, *failures(result["raw"])]


def table(name: str, comparisons: list[dict[str, Any]]) -> list[str]:
    """Return the table of one quantity: lines are pairs and numbers of connections, columns are sizes."""
    sizes = sorted({comparison["factors"]["size_bytes"] for comparison in comparisons})
    lines: dict[tuple[Any, ...], dict[str, str]] = {}
    for comparison in comparisons:
        key = (comparison["ours"], comparison["peer"], comparison["factors"].get("connections", 1))
        goal = goal_of(name, comparison)
        text = f"{comparison['ratio']:.3f} ({comparison['low']:.3f} to {comparison['high']:.3f})"
        if comparison["peer"] == "off" and comparison["quantity"] == "gbps":
            text = f"loses {percent(comparison)}"
        text = f"**{text}**" if reached(comparison, goal) == "missed" else text
        digits = ".3g" if comparison["quantity"] == "gbps" else ".0f"
        medians = ", ".join(format(comparison[f"{who}_median"], digits) for who in ("ours", "peer"))
        line = lines.setdefault(key, {})
        line[size(comparison["factors"]["size_bytes"])] = f"{text}: {medians}"
        if goal is not None:
            goals = line.get("goal", "").split(", ") if "goal" in line else []
            line["goal"] = ", ".join(dict.fromkeys([*goals, f"{goal:g}"]))
    columns = [*map(size, sizes), *(["goal"] if any("goal" in line for line in lines.values()) else [])]
    made_lines = [
        row(WHAT.get(comparisons[0]["quantity"], comparisons[0]["quantity"]), "connections", *columns)
    ]
    made_lines.append("|---" * (len(columns) + 2) + "|")
    for (ours, peer, connections), line in lines.items():
        made_lines.append(row(f"{ours} / {peer}", connections, *(line.get(name, "") for name in columns)))
    return made_lines


def percent(comparison: dict[str, Any]) -> str:
    # Adding 0.0 turns -0.0, a small gain after rounding, into 0.0.
    loss, low, high = (round(100 * (1 - comparison[key]), 1) + 0.0 for key in ("ratio", "high", "low"))
    return f"{loss:.1f} % ({low:.1f} to {high:.1f})"


def failures(raw: list[dict[str, Any]]) -> list[str]:
    """Return a line for each tool that could not run, with the size and the reason, and for each verdict."""
    lines = [
        f"- {size(item['size_bytes'])}: {who} could not be measured: {reason}"
        for item in raw
        for who, reason in item.get("failed", {}).items()
    ]
    return ["", *lines, *(f"- {item['verdict']}" for item in raw if "verdict" in item)]


def row(*cells: Any) -> str:
    return f"| {' | '.join(map(str, cells))} |"

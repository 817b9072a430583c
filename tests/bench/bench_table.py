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

Ratios are ours over the peer's, median of pairs, with 95 % intervals, and both medians; of goodput against
"off", what is lost of it. Bold: short of the goal for sure (the whole interval is).
"""

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
    "uring": (
        "As `traffic`, with one connection and one request to an io_uring at a time. `bare_uring_send` and "
        "`bare_uring_zc` are tests/bench/bare_uring.c, a loop of liburing and nothing else; both senders "
        "without a copy have 16 buffers, and wait for the notification of one before they send it again.\n"
    ),
    "observer": (
        "Switched on against switched off, in segments of the same traffic. `ours`, `ours_calls` and "
        "`ours_bytes` are what a default run of copyscope run has attached in its three kinds of "
        "segments; the first and the last have goals. `ours_sampler` and `ours_counters` are what the "
        "first is made of.\n"
    ),
}


def document(directory: Path, names: tuple[str, ...]) -> str:
    """One section for each benchmark that has results."""
    parts = [INTRODUCTION]
    for name in names:
        path = directory / f"{name}.json"
        if path.exists():
            parts += [*section(name, json.loads(path.read_text(encoding="utf-8"))), ""]
    return "\n".join(parts)


def section(name: str, result: dict[str, Any]) -> list[str]:
    machine = result["machine"]
    where = f"{machine['cpu_model']}, {machine['cpus']} CPUs, Linux {machine['kernel']}"
    where += f", under {machine['hypervisor']}" if machine["hypervisor"] else ""
    peers = [f"{peer} {version}" for peer, version in result.get("peers", {}).items() if version]
    about = [where, *peers, result.get("started", "")[:10], result.get("git") or ""]
    # A benchmark that is no contest has a table of its own.
    own = getattr(importlib.import_module(f"{name}_bench"), "lines", None)
    said = own(result["raw"]) if own is not None else contest(name, result)
    return [f"## {name}", "", "; ".join(part for part in about if part), "", *said]


def contest(name: str, result: dict[str, Any]) -> list[str]:
    made = result["comparisons"]
    text = [CONTESTS[name]] if name in CONTESTS else []
    for quantity in dict.fromkeys(one["quantity"] for one in made):
        text += [*table(name, [one for one in made if one["quantity"] == quantity]), ""]
    return [*text, *failures(result["raw"])]


def table(name: str, made: list[dict[str, Any]]) -> list[str]:
    """One quantity: a line for each pair and number of connections, a column for each size."""
    sizes = sorted({one["factors"]["size_bytes"] for one in made})
    lines: dict[tuple[Any, ...], dict[str, str]] = {}
    for one in made:
        key = (one["ours"], one["peer"], one["factors"].get("connections", 1))
        goal = goal_of(name, one)
        text = f"{one['ratio']:.3f} ({one['low']:.3f} to {one['high']:.3f})"
        if one["peer"] == "off" and one["quantity"] == "gbps":
            text = f"loses {percent(one)}"
        text = f"**{text}**" if reached(one, goal) == "missed" else text
        digits = ".3g" if one["quantity"] == "gbps" else ".0f"
        medians = ", ".join(format(one[f"{who}_median"], digits) for who in ("ours", "peer"))
        line = lines.setdefault(key, {})
        line[size(one["factors"]["size_bytes"])] = f"{text}: {medians}"
        if goal is not None:
            goals = line.get("goal", "").split(", ") if "goal" in line else []
            line["goal"] = ", ".join(dict.fromkeys([*goals, f"{goal:g}"]))
    columns = [*map(size, sizes), *(["goal"] if any("goal" in line for line in lines.values()) else [])]
    made_lines = [row(WHAT.get(made[0]["quantity"], made[0]["quantity"]), "connections", *columns)]
    made_lines.append("|---" * (len(columns) + 2) + "|")
    for (ours, peer, connections), line in lines.items():
        made_lines.append(row(f"{ours} / {peer}", connections, *(line.get(name, "") for name in columns)))
    return made_lines


def percent(made: dict[str, Any]) -> str:
    # plus 0.0: a small gain is no loss of "-0.0"
    loss, low, high = (round(100 * (1 - made[key]), 1) + 0.0 for key in ("ratio", "high", "low"))
    return f"{loss:.1f} % ({low:.1f} to {high:.1f})"


def failures(raw: list[dict[str, Any]]) -> list[str]:
    """Who could not run, at which size and why; what a benchmark says of itself in a sentence."""
    lines = [
        f"- {size(item['size_bytes'])}: {who} could not be measured: {reason}"
        for item in raw
        for who, reason in item.get("failed", {}).items()
    ]
    return ["", *lines, *(f"- {item['verdict']}" for item in raw if "verdict" in item)]


def row(*cells: Any) -> str:
    return f"| {' | '.join(map(str, cells))} |"

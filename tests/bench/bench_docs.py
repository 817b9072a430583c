"""The figures in docs/dev/bench.md and docs/dev/notes.md: blocks between two comments. Pure.

<!-- bench: NAME --> ... <!-- end -->: what stands in between is made from the results, like results/bench.
"""

import re
from collections.abc import Callable
from typing import Any

from agreement import agreement, verdict
from conclusions import OBSERVER_GOALS, OURS_WATCHING, Reached, comparison, conclusions, losses_row, size
from hooks_table import table as hooks_table
from observer_losses import SAME_INFORMATION, TIMES_LESS, losses, percent

Result = dict[str, Any]
# A benchmark's name -> its runs, this one first.
Runs = dict[str, list[Result]]
NONE = "not measured"
BLOCK = re.compile(r"(<!-- bench: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
TRAFFIC = (
    ("one_copy", "bare", "one_copy / a bare `send()` loop"),
    ("one_copy", "iperf3", "one_copy / iperf3"),
    ("one_copy_loop", "iperf3", "one_copy, one thread on each side as iperf3 / iperf3"),
    ("sendfile_loop", "iperf3_sendfile", "sendfile, likewise / `iperf3 -Z`"),
)
OBSERVER = (
    ("ours", "the ledger's instruments"),
    ("perf_record", "`perf record -a -g`, the same frequency"),
    ("bpftrace_profile", "bpftrace, the same samples"),
    ("ours_bytes", "the counting of bytes"),
    ("ours_calls", "the timing of system calls"),
    ("bpftrace_calls", "bpftrace, the same calls"),
    ("perf_trace", "`perf trace -s`"),
    ("perf_trace_bpf", "`perf trace -s --bpf-summary`"),
)
# Which program a row of a table asks; its version stands beside it where the results have it.
PROGRAM_OF = {
    "perf_record": "perf",
    "perf_trace": "perf",
    "perf_trace_bpf": "perf",
    "bpftrace_profile": "bpftrace",
    "bpftrace_calls": "bpftrace",
    "iperf3": "iperf3",
    "iperf3_sendfile": "iperf3",
}
# Newer than the results that have no row of it.
ONLY_WHERE_MEASURED = {"perf_trace_bpf"}


def filled(text: str, runs: Runs) -> str:
    """The text with its blocks made anew; a block whose benchmark has no results stays."""

    def block(found: re.Match[str]) -> str:
        name = found[2]
        if name != "agreement" and name not in runs:
            return found[0]
        return found[1] + "\n".join([*BLOCKS[name](runs), found[3]])

    return BLOCK.sub(block, text)


def traffic(runs: Runs) -> list[str]:
    sizes = sorted({made["factors"]["size_bytes"] for made in runs["traffic"][0]["comparisons"]})
    text = head("goodput", "connections", *map(size, sizes), "goal")
    for ours, peer, label in TRAFFIC:
        for connections in (1, 4):
            cells, goal = [], None
            for size_bytes in sizes:
                factors = {"size_bytes": size_bytes, "connections": connections}
                lines = []
                for run in runs["traffic"]:
                    made = one_of(run, ours, peer, factors)
                    one = comparison("traffic", made) if made else None
                    goal = one.goal if one else goal
                    lines.append(
                        marked(f"{one.ratio:.3f} ({one.low:.3f} to {one.high:.3f})", one.reached)
                        if one
                        else NONE
                    )
                cells.append("<br>".join(lines))
            named = label + versions(peer, runs["traffic"])
            text.append(row(named, connections, *cells, f"{goal:g}" if goal else None))
    return text


def observer(runs: Runs) -> list[str]:
    sizes = sorted({made["factors"]["size_bytes"] for made in runs["observer"][0]["comparisons"]})
    text = head("goodput lost to", *map(size, sizes), "goal, at most")
    for name, label in OBSERVER:
        known = {made["ours"] for run in runs["observer"] for made in run["comparisons"]}
        if name in ONLY_WHERE_MEASURED - known:
            continue
        cells, goals = [], []
        for size_bytes in sizes:
            lines = []
            for run in runs["observer"]:
                made = one_of(run, name, "off", {"size_bytes": size_bytes})
                one = comparison("observer", made) if made else None
                lines.append(marked(percent(made), one.reached) if made and one else NONE)
            cells.append("<br>".join(lines))
            goal = OBSERVER_GOALS.get(size_bytes) if name in OURS_WATCHING else None
            goals += [f"{100 * (1 - goal):.0f} %"] if goal else []
        text.append(row(label + versions(name, runs["observer"]), *cells, ", ".join(goals)))
    for name, label in OBSERVER:
        cells = [
            "<br>".join(times_less(run, name, size_bytes) for run in runs["observer"]) for size_bytes in sizes
        ]
        if name in SAME_INFORMATION:
            text.append(row(f"{label}: times less than the best peer", *cells, f"at least {TIMES_LESS}"))
    return text


def versions(name: str, runs: list[Result]) -> str:
    """` (6.1.172)`: of the peer that a row asks, in this run and where it was another in the earlier one."""
    found = [run.get("peers", {}).get(PROGRAM_OF.get(name, "")) for run in runs]
    known = list(dict.fromkeys(version for version in found if version))
    return f" ({', '.join(known)})" if known else ""


def times_less(run: Result, name: str, size_bytes: int) -> str:
    reached = {one.row: one.reached for one in conclusions("observer", run)}
    for found in losses(run["comparisons"]):
        if (found.ours["ours"], found.ours["factors"]["size_bytes"]) == (name, size_bytes):
            return marked(found.times_less, reached[losses_row(found)])
    return NONE


def attach(runs: Runs) -> list[str]:
    """What each run says of itself."""
    return [f"- {item['verdict']}." for run in runs["attach"] for item in run["raw"] if "verdict" in item]


def hooks(runs: Runs) -> list[str]:
    machine = runs["hooks"][0]["machine"]
    about = f"{machine['cpu_model']}, {machine['cpus']} CPUs:"
    return [about, "", *hooks_table(runs["hooks"][0]["raw"])]


def agreed(runs: Runs) -> list[str]:
    """Whether both runs come to the same, of those that are of one machine."""
    pairs = [agreement(name, *both) for name, both in runs.items() if len(both) > 1]
    return [f"Two runs: {verdict([one for one in pairs if one])}"]


BLOCKS: dict[str, Callable[[Runs], list[str]]] = {
    "traffic": traffic,
    "observer": observer,
    "attach": attach,
    "hooks": hooks,
    "agreement": agreed,
}


def one_of(run: Result, ours: str, peer: str, factors: dict[str, int]) -> dict[str, Any] | None:
    """The goodput of one against the other; None where one of them could not be measured."""
    wanted = (ours, peer, "gbps", factors)
    found: list[dict[str, Any]] = run["comparisons"]
    return next((m for m in found if (m["ours"], m["peer"], m["quantity"], m["factors"]) == wanted), None)


def marked(text: str, reached: Reached | None) -> str:
    """Bold where the goal is missed for sure."""
    return f"**{text}**" if reached == "missed" else text


def head(*cells: str) -> list[str]:
    return [row(*cells), "|---" * len(cells) + "|"]


def row(*cells: Any) -> str:
    return f"| {' | '.join('' if cell is None else str(cell) for cell in cells)} |"

"""What is said first of a run: goodput, the verdict, the path of a byte as bars, and how far to trust it.

At most 24 lines of 80 columns, for a terminal that was never made larger. All shares are of one whole: the
CPU time of both sides, and of the softirq work beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from copyscope import calling, units
from copyscope.escaping import one_line
from copyscope.render import terminal
from copyscope.render.evidence import in_order
from copyscope.render.layout import Column, Table, heading, wrap
from copyscope.render.ledger_table import kib_factor, occurring, position
from copyscope.render.portrait import advice_lines
from copyscope.taxonomy.taxonomy import ACCOUNTS

Record = Mapping[str, Any]

WIDTH = 80
LINES = 24
ROWS_MAX, ROWS_MIN = 8, 4
BAR_WIDTH = 16
NAME_MAX = 48  # of a command with its arguments
# KiB that 10 Gb/s deliver in a second, each for so many ns of CPU time; in seconds, which is in CPUs.
CORES_AT_10_GBPS = 10e9 / 8 / 1024 / 1e9
COPIES = {
    "gather": "program's own memcpy",
    "copy_in": "copy into the kernel",
    "pin": "page pinning",
    "deferred": "late copy",
    "silent": "hidden copy",
    "completion": "completion notices",
    "copy_out": "copy to the receiver",
    "mapped": "pages mapped",
}
WORK = {
    "syscall": "system calls",
    "skb_alloc": "packet buffers",
    "tcp_ip": "TCP/IP",
    "device": "network device",
    "softirq": "softirq",
    "wakeup_sched": "waking, scheduling",
    "lock": "locks",
    "memory": "memory management",
    "irq": "interrupts",
    "user": "program's other work",
    "instruments": "copyscope itself",
    "unattributed": "not explained",
}
MORE = "more: -v (everything), --explain (what each line means), --json FILE (the data)"


def render(record: Record, console: Console) -> None:
    """Print it."""
    width = min(console.width, WIDTH)
    for rows in range(ROWS_MAX, ROWS_MIN - 1, -1):
        lines = _headline(record, width) + _path(record, width, rows) + [Text()]
        lines += [*wrap(_trust(record), width, indent=2), *wrap(MORE, width, indent=2, style="dim")]
        if len(lines) <= LINES:
            break
    # What was asked for is said after the screen, not instead of a part of it.
    terminal.print_lines([*lines, *advice_lines(record, width)], console)


def _headline(record: Record, width: int) -> list[Text]:
    verdict = record["verdict"]
    lines: list[Text] = []
    if not verdict["valid"]:
        more = len(verdict["reasons"]) - 1
        also = f" (and {more} more: -v)" if more else ""
        lines += wrap(f"INVALID RUN: {verdict['reasons'][0]}{also}", width, indent=2, style="bold red")
        if verdict.get("next"):
            lines += wrap(calling.spelled(f"next: {verdict['next']}"), width, indent=2, style="red")
    lines += wrap(_title(record), width, indent=2, style="bold")
    return lines + (wrap(verdict["sentence"], width, indent=2) if verdict["valid"] else [])


def _title(record: Record) -> str:
    goodput = record["throughput_gbps"]
    rate = goodput["unprobed"] if goodput["unprobed"] is not None else goodput["probed"]
    speed = "goodput n/a" if rate is None else units.format_gbps(rate)
    speed += " with instruments attached" if rate is not None and goodput["unprobed"] is None else ""
    measured = units.format_seconds(record["run"]["measured_s"])
    if record.get("target"):
        command = record["workload"]["command"]
        name = (
            one_line(" ".join(" ".join(command).split()), NAME_MAX) if command else record["target"]["name"]
        )
        sent, received = units.format_bytes(record["tx_bytes"]), units.format_bytes(record["rx_bytes"])
        return f"{name}: {speed}, {sent} sent, {received} received in {measured}"
    work = record["workload"]
    threads = f"{work['threads']} thread{'' if work['threads'] == 1 else 's'}"
    size = units.format_bytes(work["size_bytes"])
    return f"{work['impl']}, {size}, {threads}, {record['topology']['kind']}: {speed}, {measured} measured"


def _path(record: Record, width: int, rows_max: int) -> list[Text]:
    """Each copy in the order in which a byte meets it, then what else takes most; they add up."""
    copies, work = _copies(record), _work(record)
    total_ns = sum(ns for _, _, ns in (*copies, *work))
    per_kib = kib_factor(record)
    kib = "sent or received" if record.get("target") else "delivered"
    if not total_ns or per_kib is None:
        reasons = (row["reasons"].get("share") for row in record["stages"])
        why = next(filter(None, reasons), None)
        title = heading("THE PATH OF A BYTE", "", width)
        return title + wrap(f"n/a: {why or 'no CPU time was seen, or nothing moved'}", width, indent=2)
    work.sort(key=lambda row: row[2], reverse=True)
    room = max(1, rows_max - len(copies) - 1)
    rest = work[room:]
    rows = [*copies, *work[:room], *([("the rest", "", sum(ns for _, _, ns in rest))] if rest else [])]
    note = f"CPU time for each KiB {kib}; cores: at 10 Gb/s"
    lines = heading("THE PATH OF A BYTE", note, width)
    columns = [Column("what", right=False, key=True), Column("where", right=False, key=True)]
    columns += [Column("ns/KiB"), Column("share"), Column("cores"), Column("", right=False)]
    table = Table(columns)
    longest = max(ns for _, _, ns in rows) / total_ns
    for what, where, ns in (*rows, ("all", "", total_ns)):
        price = ns * per_kib
        bar = "" if what == "all" else units.format_bar(ns / total_ns, longest, BAR_WIDTH)
        cores = units.format_hundredths(price * CORES_AT_10_GBPS)
        table.add(what, where, units.format_tenths(price), units.format_percent(ns / total_ns), cores, bar)
    table.strong = {*range(len(copies)), len(rows)}
    return lines + table.lines(width)


def _copies(record: Record) -> list[tuple[str, str, float]]:
    """(what, where, ns) of each account and side; one that took no time is no row."""
    times: dict[tuple[str, str], float] = {}
    contexts: dict[tuple[str, str], set[str]] = {}
    for row in occurring(record["ledger"]):
        key = row["account"], row["side"]
        times[key] = times.get(key, 0.0) + (row["cpu_ns"] or 0.0)
        contexts.setdefault(key, set()).add(row["context"])
    ordered = sorted(times, key=lambda key: position(ACCOUNTS, key[0]))
    return [
        (_copy(record, account), _where(record, side, contexts[account, side]), times[account, side])
        for account, side in ordered
        if times[account, side]
    ]


def _copy(record: Record, account: str) -> str:
    return "copy to the program" if account == "copy_out" and record.get("target") else COPIES[account]


def _where(record: Record, side: str, contexts: set[str]) -> str:
    whose = "" if record.get("target") else side
    return f"{whose}, softirq".removeprefix(", ") if contexts == {"softirq"} else whose


def _work(record: Record) -> list[tuple[str, str, float]]:
    """The same of all other work, both sides in one."""
    times: dict[str, float] = {}
    for row in record["stages"]:
        times[row["stage"]] = times.get(row["stage"], 0.0) + (row["cpu_ns"] or 0.0)
    return [(WORK.get(stage, stage), "", ns) for stage, ns in times.items() if ns]


def _trust(record: Record) -> str:
    """Whether it counts, what measuring cost, how quiet the machine was, what was lost."""
    checks = [one for one in record["identities"] if one["holds"] is not None]
    holding = sum(bool(one["holds"]) for one in checks)
    parts = [
        f"{'valid' if record['verdict']['valid'] else 'INVALID'}, {holding} of {len(checks)} checks hold"
    ]
    parts.append(f"overhead on goodput: {', '.join(_overheads(record))}")
    state = record.get("machine_state")
    if state is not None:
        parts.append(state["sentence"] or "machine quiet")
    counts = {name: entry["count"] for name, entry in record["loss"].items()}
    lost = [name for name, count in counts.items() if count]
    unknown = sum(count is None for count in counts.values())
    if not counts or unknown:
        parts.append(f"{unknown or 'all'} loss counters n/a")
    parts.append(f"lost: {', '.join(lost)}" if lost else "nothing lost" if counts else "losses not known")
    return "; ".join(parts)


def _overheads(record: Record) -> Iterable[str]:
    """Of goodput, with its interval; of a watched program what all that is attached costs."""
    section = record["overhead"]
    attached = section.get("attached")
    arms = [("watching", attached)] if attached is not None else in_order(section["arms"])
    for name, one in arms:
        if one["ratio"] is None:
            yield f"{name} n/a"
        else:
            ends = [f"{(end - 1) * 100:+.1f}" for end in (one["low"], one["high"]) if end is not None]
            interval = f" ({' to '.join(ends)})" if ends else ""
            yield f"{name} {(one['ratio'] - 1) * 100:+.1f} %{interval}"

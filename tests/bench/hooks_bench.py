"""What does one event of a hook cost? Program by program: here, and in a guest those that are refused here.

tests/bench/hook_cost.c measures: CPU time of many events with the program attached, less that of the same
work without it, in turns. All rows are gone through again and again, because a machine is not the same a
minute later: one round of a row is one value, the median of a few pairs. A guest is emulated: only the ratios
of its figures mean anything.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

# A guest runs this file itself.
sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "tools")]

from copyscope import paths  # noqa: E402
from copyscope.stats import bootstrap  # noqa: E402
from samples import BLOCKS, Comparison  # noqa: E402

HOOK_COST = ".output/tests/hook-cost"
BOOT = paths.ROOT / "tests" / "kernels" / "boot.sh"
KERNELS = Path("~/.cache/copyscope/kernels").expanduser()
# The newest of tests/kernels/matrix.py: it takes every kind of hook.
GUEST = "sid-amd64"
GUEST_S = 240
ROW_S = 60
MARK = "@@HOOK "
# A pair takes some 10 ms; a fifth of a second where each call is a TCP send with its receive, and in a guest.
PAIRS, FEW_PAIRS = 4, 2
CALLS = 20_000


@dataclass(frozen=True)
class Row:
    """One call of hook_cost; `what` is what the table says."""

    what: str
    kind: str
    target: str
    work: str = "getpid"
    reads: str = ""

    def argv(self, *, guest: bool) -> list[str]:
        """One round of it."""
        end = [self.reads] if self.reads else []
        pairs = FEW_PAIRS if guest or self.work == "tcp" else PAIRS
        return [HOOK_COST, self.kind, self.target, self.work, str(CALLS), str(pairs), *end]


# Called once by getpid(2), on every kernel since 2.6.24.
FUNCTION = "__task_pid_nr_ns"
KINDS = (
    Row("tp_btf", "tp_btf", "sys_enter"),
    Row("raw_tp", "raw_tp", "sys_enter"),
    Row("classic tracepoint", "tracepoint", "sys_enter"),
    Row("tp_btf, a hook that only sockets reach", "tp_btf", "sock_recv_length", "peek"),
    Row("tp_btf and the clock", "tp_btf", "sys_enter", reads="clock"),
    *(Row(f"tp_btf and {n} counter{'s'[: n > 1]}", "tp_btf", "sys_enter", reads=str(n)) for n in range(1, 5)),
)
FUNCTIONS = (
    Row("fentry", "fentry", FUNCTION),
    Row("fexit", "fexit", FUNCTION),
    Row("kprobe", "kprobe", FUNCTION),
    Row("kretprobe", "kretprobe", FUNCTION),
    # Half of a pair each: what the entry and the exit of a send cost, by two.
    Row("functions: a send that is only counted", "counted", "tcp_sendmsg", "empty"),
    Row("functions: a send that is timed", "timed", "tcp_sendmsg", "empty"),
)
SAMPLES = (
    Row("timer, no program", "perf_event", "cpu-clock", "tcp"),
    Row("timer and program", "perf_event+program", "cpu-clock", "tcp"),
    Row("timer, program and kernel stack", "perf_event+stack", "cpu-clock", "tcp"),
)
OURS = (
    Row("calls: begin of another system call", "ours:on_syscall_enter", "sys_enter"),
    Row("calls: end of another system call", "ours:on_syscall_exit", "sys_exit"),
    Row("calls: begin of a receive", "ours:on_syscall_enter", "sys_enter", "peek"),
    Row("calls: end of a receive", "ours:on_syscall_exit", "sys_exit", "peek"),
    Row("calls: a send, counted", "ours:on_call_sent", "sock_send_length", "unix"),
    Row("calls: a receive, counted", "ours:on_call_received", "sock_recv_length", "peek"),
    Row("calls: softirq begins", "ours:on_softirq_enter", "softirq_entry", "tcp"),
    Row("calls: softirq ends", "ours:on_softirq_leave", "softirq_exit", "tcp"),
    Row("bytes: a send", "ours:on_send_bytes", "sock_send_length", "unix"),
    Row("bytes: a receive", "ours:on_receive_bytes", "sock_recv_length", "peek"),
    Row("bytes: a copy to the program", "ours:on_copy_out_bytes", "skb_copy_datagram_iovec", "tcp"),
    Row("watch: a send", "ours:on_volume_sent", "sock_send_length", "tcp"),
    Row("watch: a receive", "ours:on_volume_received", "sock_recv_length", "tcp"),
    Row("watch: is it a splice?", "ours:on_splice_seen", "tcp_rcv_space_adjust", "tcp"),
    Row(
        "sampler: a packet, while the others' timers rest", "ours:on_packet_owner", "netif_receive_skb", "tcp"
    ),
)
HERE_ROWS = (*KINDS, *FUNCTIONS, *SAMPLES, *OURS)
GUEST_ROWS = (*KINDS, *FUNCTIONS)


def rows(seed: int, _cpus: list[str]) -> Iterator[tuple[list[Comparison], dict[str, Any]]]:
    """This machine, then the guest: every row with its values, and which could not run and why."""
    made = _joined(_measure(HERE_ROWS, seed, guest=False), HERE_ROWS)
    yield [], _summary("host", os.uname().release, made, seed)
    kernel, found = _guest(seed)
    yield [], _summary("guest", kernel, found, seed)


def _measure(wanted: Sequence[Row], seed: int, *, guest: bool) -> Iterator[dict[str, Any]]:
    """Every row in every round, each in an order of its own; one that cannot run is not tried again."""
    shuffler = random.Random(seed)
    failed: set[Row] = set()
    for _ in range(BLOCKS):
        for row in shuffler.sample(wanted, len(wanted)):
            if row in failed:
                continue
            one: dict[str, Any] = {"what": row.what, "kind": row.kind, "target": row.target, "work": row.work}
            one |= {"reads": row.reads or None} | _one_round(row, guest=guest)
            if "failed" in one:
                failed.add(row)
            yield one


def _one_round(row: Row, *, guest: bool) -> dict[str, Any]:
    try:
        done = subprocess.run(
            row.argv(guest=guest), capture_output=True, text=True, check=False, timeout=ROW_S, cwd=paths.ROOT
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"no end within {ROW_S} s"}
    if done.returncode:
        return {"failed": done.stderr.strip() or f"status {done.returncode}"}
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def _joined(found: Iterable[dict[str, Any]], wanted: Sequence[Row]) -> list[dict[str, Any]]:
    """Each row once, in the order of the table: `ns` are the medians of its rounds."""
    rows: dict[str, dict[str, Any]] = {}
    order = [row.what for row in wanted]
    for one in sorted(found, key=lambda one: order.index(one["what"])):
        row = rows.setdefault(one["what"], {**one, "ns": []})
        row |= {"failed": one["failed"]} if "failed" in one else {}
        row["ns"] += [median(one["ns"])] if "ns" in one else []
    for row in rows.values():
        if "failed" in row:
            del row["ns"]
    return list(rows.values())


def _guest(seed: int) -> tuple[str, list[dict[str, Any]]]:
    """The rows of a guest and its kernel; without one, every row says why."""
    root = KERNELS / GUEST / "root"
    if not root.exists():
        reason = f"no guest: {root}: missing: make check-kernels KERNELS=7.x fetches it"
        return GUEST, [{"what": row.what, "failed": reason} for row in GUEST_ROWS]
    command = f"COPYSCOPE_BENCH_BLOCKS={BLOCKS} {sys.executable} -B tests/bench/hooks_bench.py {seed}"
    done = subprocess.run(
        [str(BOOT), str(root), command],
        env={**os.environ, "COPYSCOPE_GUEST_TIMEOUT_S": str(GUEST_S)},
        capture_output=True,
        text=True,
        check=False,
        cwd=paths.ROOT,
    )
    said = [json.loads(line.split(MARK, 1)[1]) for line in done.stdout.splitlines() if MARK in line]
    kernel = next((one["kernel"] for one in said if "kernel" in one), GUEST)
    found = _joined((one for one in said if "what" in one), GUEST_ROWS)
    there = {one["what"] for one in found}
    last = (done.stdout + done.stderr).strip().splitlines()[-1:]
    why = f"the guest ended: {last}"
    return kernel, [*found, *({"what": r.what, "failed": why} for r in GUEST_ROWS if r.what not in there)]


def _summary(where: str, kernel: str, found: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    for one in found:
        if "ns" in one:
            low, high = bootstrap(one["ns"], seed)
            one |= {"median_ns": median(one["ns"]), "low_ns": low, "high_ns": high}
    return {"where": where, "kernel": kernel, "hooks": found}


def lines(raw: list[dict[str, Any]]) -> list[str]:
    """The section of results/bench/README.md; `to tp_btf` is to that of the same kernel."""
    text = ["| kernel | program | on | ns per event | to tp_btf |", "|---|---|---|---|---|"]
    refused: dict[str, list[str]] = {}
    for item in raw:
        kernel = item["kernel"] + (" (guest: only ratios mean anything)" if item["where"] == "guest" else "")
        base = next((one["median_ns"] for one in item["hooks"] if one.get("kind") == "tp_btf"), None)
        for one in item["hooks"]:
            if "failed" in one:
                refused.setdefault(f"- {kernel}: {one['failed']}", []).append(one["what"])
                continue
            counted = f", {one['counters']} events" if one.get("counters") else ""
            figure = f"{one['median_ns']:,.0f} ({one['low_ns']:,.0f} to {one['high_ns']:,.0f})"
            ratio = f"{one['median_ns'] / base:.2f}" if base else ""
            text.append(f"| {kernel} | {one['what']}{counted} | {one['target']} | {figure} | {ratio} |")
    return [*text, "", *(f"{why}: {', '.join(whats)}" for why, whats in refused.items())]


def main(seed: int) -> int:
    """In the guest: each round of each row as one line, as soon as it is there."""
    print(MARK + json.dumps({"kernel": os.uname().release}), flush=True)
    for one in _measure(GUEST_ROWS, seed, guest=True):
        print(MARK + json.dumps(one), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))

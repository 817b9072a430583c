"""Calls of which the kernel timed some and counted no other: how many there were is the programs' own count.

To count every call takes a hook at every call: 2 to 5 % of the CPU time. The programs know what they call,
and in segments of the arm `bytes` the kernel's count of the same is compared with theirs. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Row = dict[str, Any]
TIMES = ("on_cpu_ns", "softirq_ns", "blocked_ns")
# What `calls[].counted_at` says of such rows, before and after.
WINDOW, PROGRAM = "window", "program"


def kernel_name(syscall: str) -> str:
    """The C library's send() and recv() are the system calls sendto and recvfrom."""
    return {"send": "sendto", "recv": "recvfrom"}.get(syscall, syscall)


def sends_made(totals: Iterable[Mapping[str, int]]) -> Counter[str]:
    """The `send_syscalls` of several segments, added up by the kernel's names."""
    made: Counter[str] = Counter()
    for syscall, calls in (pair for total in totals for pair in total.items()):
        made[kernel_name(syscall)] += calls
    return made


def told_by_programs(rows: Iterable[Row], segments: Sequence[Row]) -> Iterator[Row]:
    """The rows, with the programs' counts where the kernel has counted the timed calls alone."""
    found = list(rows)
    timing = [segment for segment in segments if "calls" in segment["arm"]]
    for row in found:
        if row.get("counted_at") != WINDOW:
            yield row
            continue
        same_side = [other for other in found if other["side"] == row["side"]]
        yield _told(row, *_made(row, same_side, timing))


def _told(row: Row, calls: int, moved: int) -> Row:
    factor = calls / row["timed_calls"] if row["timed_calls"] else 0.0
    times = {key: None if row[key] is None else round(row[key] * factor) for key in TIMES}
    return {**row, **times, "calls": calls, "bytes": moved, "counted_at": PROGRAM}


def _made(row: Row, same_side: Sequence[Row], segments: Sequence[Row]) -> tuple[int, int]:
    """(calls, bytes) that the program says it made of this system call.

    A call that it does not count by name (none is known) is as many as its timed ones stand for.
    """
    known = _by_name(row["side"], same_side, segments)
    if row["syscall"] in known:
        return known[row["syscall"]]
    timed = sum(other["timed_calls"] for other in same_side if other["syscall"] in known)
    made = sum(known[other["syscall"]][0] for other in same_side if other["syscall"] in known)
    factor = made / timed if timed else 1.0
    return round(row["calls"] * factor), round(row["bytes"] * factor)


def _by_name(side: str, same_side: Sequence[Row], segments: Sequence[Row]) -> dict[str, tuple[int, int]]:
    totals = [segment[side] for segment in segments]
    if side == "receiver":
        (only,) = (row["syscall"] for row in same_side) if len(same_side) == 1 else (None,)
        return {} if only is None else {only: _received(totals)}
    moved = sum(int(total["bytes"]) for total in totals)
    made = sends_made(total["send_syscalls"] for total in totals)
    # A program that sends in two ways does not say how many bytes went which way.
    seen = sum(row["bytes"] for row in same_side if row["syscall"] in made)
    shares = {row["syscall"]: row["bytes"] / seen if seen else 0.0 for row in same_side}
    known = {name: (calls, round(moved * shares.get(name, 0.0))) for name, calls in made.items()}
    reads = sum(int((total["zerocopy"] or {}).get("errqueue_reads", 0)) for total in totals)
    return known | ({"recvmsg": (reads, 0)} if reads else {})


def _received(totals: Sequence[Row]) -> tuple[int, int]:
    """(calls, bytes) of the receiver's calls that are timed: getsockopt(2), which maps, is none of them."""
    calls, moved = (sum(int(total[key]) for total in totals) for key in ("calls", "bytes"))
    for total in totals:
        if mapped := total.get("mapped"):
            calls -= mapped["calls"]
            moved -= mapped["bytes"] + mapped["copied_bytes"]
        if ring := total.get("io_uring"):
            calls += ring["enters"] - total["calls"]
    return calls, moved

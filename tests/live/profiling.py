"""Running copyscope from a test, and knowing what it must leave behind: nothing."""

import functools
import json
import os
import platform
import re
import subprocess
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from copyscope import paths

# (6, 18)
KERNEL = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
FRONT = str(paths.ROOT / "bin" / "copyscope")
RUN, WATCH = [FRONT, "run"], [FRONT, "watch"]

# How many times slower than a machine this one is: an emulated guest (make check-kernels) says so. It
# stretches what tests wait for, never what they assert about results.
SLOW = float(os.environ.get("COPYSCOPE_SLOW", "1"))

# How often a run is made that the kernel marks.
RUNS_MAX = 5


def profile(
    *options: str, verb: str = "run", check: int | None = 0, timeout_s: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run it; `check` is the exit status that must come out (None: any)."""
    argv = [FRONT, verb, "--quiet", *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout_s * SLOW)
    _expect(done, check)
    return done


def _expect(done: subprocess.CompletedProcess[str], status: int | None) -> None:
    assert status is None or done.returncode == status, (
        f"{done.args}: status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr}"
    )


@dataclass(frozen=True)
class Run:
    """What is left of one: its record, and what it printed."""

    record: dict[str, Any]
    screen: str


def run_of(*options: str, verb: str = "run", check: int | None = 0, lossless: bool = False) -> Run:
    """One run.

    On 7.x a program is preempted in its middle, and while it waits no second one of its kind starts on that
    CPU; one of kprobe.multi is skipped under a softirq. Such losses are counted, and too many of them mark a
    run, as they must: it is made again. `lossless`: already for one of them, and in an emulated guest for a
    call that no hook saw (one of 184, in few runs; why is not known): a warning has what was lost.
    """
    for _ in range(RUNS_MAX):
        with tempfile.TemporaryDirectory(prefix="run-") as place:
            kept = Path(place) / "record.json"
            done = profile("--json", str(kept), *options, verb=verb, check=None)
            assert kept.exists(), f"{done.args}: status {done.returncode}, no record\n{done.stderr}"
            made: dict[str, Any] = json.loads(kept.read_bytes())
        reasons = (made.get("verdict") or {}).get("reasons", [])
        marked = bool(reasons) and all(reason.startswith("loss: recursion_") for reason in reasons)
        met = any(row["count"] for name, row in made["loss"].items() if name.startswith("recursion_"))
        missed = broken_identities(made) if lossless and SLOW > 1 else []
        if not marked and not (lossless and met) and not missed:
            break
        if missed:
            lost = {name: row["count"] for name, row in made["loss"].items() if row["count"]}
            warnings.warn(f"made again: {missed}, lost {lost}", stacklevel=2)
    _expect(done, check)
    return Run(made, done.stdout)


def record_of(
    *options: str, verb: str = "run", check: int | None = 0, lossless: bool = False
) -> dict[str, Any]:
    """The record of one run."""
    return run_of(*options, verb=verb, check=check, lossless=lossless).record


# What each shared run sends: enough for samples of every account; an emulated guest has its time with fewer.
SHARED_SIZE = 40_000
SHARED_MESSAGES = round(10_000 / SLOW**2)


@functools.cache
def recorded(words: str, path: str) -> Run:
    """The run of a strategy (its words on the command line) on a path: one for all tests that look at it."""
    sent = ("--messages", str(SHARED_MESSAGES), "--size", str(SHARED_SIZE), "--frequency", "1999", "-v")
    return run_of("--impl", *words.split(), "--topology", path, *sent, check=None)


def broken_identities(record: dict[str, Any]) -> list[str]:
    """One line for each identity that does not hold.

    An emulated processor stands still while others have theirs, and its timer with it: there samples are no
    measure of CPU time.
    """
    return [
        f"{row['name']}: {row['left']} is not {row['right']} {row['unit']}"
        for row in record["identities"]
        if row["holds"] is False
        and not (SLOW > 1 and (row["name"].endswith("_time") or row["name"] == "within_cpus"))
    ]


@dataclass(frozen=True)
class Traces:
    """What a run could leave behind on this machine."""

    namespaces: frozenset[int]
    links: frozenset[str]
    programs: frozenset[int]
    processes: frozenset[int]


def traces() -> Traces:
    """Everything of ours that exists now: network namespaces in use, links, BPF programs, processes."""
    namespaces: set[int] = set()
    processes: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            namespaces.add((entry / "ns" / "net").stat().st_ino)
            if str(paths.OUTPUT) in (entry / "cmdline").read_text(errors="replace"):
                processes.add(int(entry.name))
        except OSError:  # it ended meanwhile
            continue
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    shown = subprocess.run(
        ["bpftool", "--json", "prog", "show"], capture_output=True, text=True, check=True
    ).stdout
    programs = {
        row["id"] for row in json.loads(shown) if row.get("name", "").startswith(("on_", "enter_", "leave_"))
    }
    return Traces(
        frozenset(namespaces),
        frozenset(line.split(":")[1].strip() for line in links.splitlines()),
        frozenset(programs),
        frozenset(processes),
    )


def new_since(before: Traces) -> list[str]:
    """What is there now and was not before, one line each."""
    now = traces()
    rows: Sequence[tuple[str, frozenset[Any], frozenset[Any]]] = (
        ("network namespace", now.namespaces, before.namespaces),
        ("link", now.links, before.links),
        ("BPF program", now.programs, before.programs),
        ("process", now.processes, before.processes),
    )
    return [f"{what} {item}" for what, after, earlier in rows for item in sorted(after - earlier)]


def left_after_a_second(before: Traces) -> list[str]:
    """What is still there when for a second nothing more has gone.

    The kernel frees programs and namespaces after a grace period: function hooks one after the other.
    """
    left = new_since(before)
    deadline = time.monotonic() + 1.0 * SLOW
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        earlier, left = left, new_since(before)
        if len(left) < len(earlier):
            deadline = time.monotonic() + 1.0 * SLOW
    return left


def child_named(parent_pid: int, word: str) -> int | None:
    """The pid of a descendant whose command line has the word in it, and does not only check its options."""
    waiting = [parent_pid]
    while waiting:
        pid = waiting.pop()
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        is_traffic = words[0].endswith(b"/traffic") and b"--check" not in words
        if pid != parent_pid and word.encode() in words and is_traffic:
            return pid
        waiting += [int(child) for child in children]
    return None


def in_all(*values: object) -> Any:
    """Parameters of a test that runs with them in `make test-all` only."""
    return pytest.param(*values, marks=pytest.mark.all)


def is_root() -> bool:
    return os.geteuid() == 0

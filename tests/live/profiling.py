# SPDX-License-Identifier: GPL-2.0-only
"""Run copyscope from a test, and check that nothing of a run remains on the machine."""

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
from typing import IO, Any

import pytest
from copyscope.base import paths
from copyscope.record import run as record_run
from copyscope.record import store

# Version of the running kernel, such as (6, 18).
KERNEL = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
COPYSCOPE = str(paths.ROOT / "bin" / "copyscope")
RUN, WATCH = [COPYSCOPE, "run"], [COPYSCOPE, "watch"]

# How many times slower than a machine an emulated guest is (set by make check-kernels). Waits of tests are
# multiplied by it, assertions about results are not.
SLOW = float(os.environ.get("COPYSCOPE_SLOW", "1"))

# How many times a run is repeated if its only flaw is BPF programs that the kernel skipped.
MAX_RUNS = 5


def await_line(stream: IO[Any] | None, text: str | bytes) -> None:
    """Read lines until one contains a text. On a busy machine, lines about slow steps may come before."""
    assert stream is not None and any(text in line for line in stream)


def profile(
    *options: str, verb: str = "run", check: int | None = 0, timeout_s: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run `copyscope VERB --quiet OPTIONS`. `check` is the expected exit status (None: any)."""
    argv = [COPYSCOPE, verb, "--quiet", *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout_s * SLOW)
    _expect(done, check)
    return done


def _expect(done: subprocess.CompletedProcess[str], status: int | None) -> None:
    assert status is None or done.returncode == status, (
        f"{done.args}: status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr}"
    )


@dataclass(frozen=True)
class Run:
    """The record and the screen of a run."""

    record: dict[str, Any]
    screen: str


def run_of(*options: str, verb: str = "run", check: int | None = 0, lossless: bool = False) -> Run:
    """Run copyscope, and repeat the run if BPF programs were skipped.

    On 7.x a BPF program can be preempted. Until it continues, no second program of its kind starts on that
    CPU. A program of kprobe.multi is also skipped under a softirq. copyscope counts such losses, and too many
    make a run invalid.

    `lossless` repeats the run after a single loss. In an emulated guest it also repeats the run if an
    identity does not hold, because hooks there miss a call in a few runs (1 of 184; the cause is unknown). A
    warning names the losses.
    """
    for _ in range(MAX_RUNS):
        with tempfile.TemporaryDirectory(prefix="run-") as directory:
            path = Path(directory) / "record.json"
            done = profile("--json", str(path), *options, verb=verb, check=None)
            assert path.exists(), f"{done.args}: status {done.returncode}, no record\n{done.stderr}"
            record: dict[str, Any] = json.loads(path.read_bytes())
        reasons = (record.get("verdict") or {}).get("reasons", [])
        only_recursion = bool(reasons) and all(reason.startswith("loss: recursion_") for reason in reasons)
        any_recursion = any(
            row["count"] for name, row in record["loss"].items() if name.startswith("recursion_")
        )
        broken = broken_identities(record) if lossless and SLOW > 1 else []
        if not only_recursion and not (lossless and any_recursion) and not broken:
            break
        if broken:
            lost = {name: row["count"] for name, row in record["loss"].items() if row["count"]}
            warnings.warn(f"made again: {broken}, lost {lost}", stacklevel=2)
    _expect(done, check)
    return Run(record, done.stdout)


def record_of(
    *options: str, verb: str = "run", check: int | None = 0, lossless: bool = False
) -> dict[str, Any]:
    """Run copyscope and return the record."""
    return run_of(*options, verb=verb, check=check, lossless=lossless).record


# Messages of each shared run: enough for samples of every account; fewer in an emulated guest.
SHARED_SIZE = 40_000
SHARED_MESSAGES = round(10_000 / SLOW**2)


@functools.cache
def recorded(words: str, path: str) -> Run:
    """Run a strategy (with options, `words`) on a path. All tests share this run."""
    options = ("--messages", str(SHARED_MESSAGES), "--size", str(SHARED_SIZE), "--frequency", "1999", "-v")
    return run_of("--impl", *words.split(), "--topology", path, *options, check=None, lossless=True)


def typed_run(record: dict[str, Any]) -> record_run.Run:
    """Return a record as a typed Run."""
    run = store.as_record(record)
    assert isinstance(run, record_run.Run)
    return run


def broken_identities(record: dict[str, Any]) -> list[str]:
    """Return one line for each identity of the record that does not hold.

    In an emulated guest, identities of sampled time are ignored: the emulated CPU stops while other guests
    run, and the timer of the sampler stops with it.
    """
    return [
        f"{row['name']}: {row['left']} is not {row['right']} {row['unit']}"
        for row in record["identities"]
        if row["holds"] is False
        and not (SLOW > 1 and (row["name"].endswith("_time") or row["name"] == "within_cpus"))
    ]


@dataclass(frozen=True)
class Traces:
    """Everything that a run could leave on this machine."""

    namespaces: frozenset[int]
    links: frozenset[str]
    programs: frozenset[int]
    processes: frozenset[int]


def traces() -> Traces:
    """Return the namespaces in use, links, BPF programs of copyscope and processes that exist now."""
    namespaces: set[int] = set()
    processes: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            namespaces.add((entry / "ns" / "net").stat().st_ino)
            if str(paths.OUTPUT) in (entry / "cmdline").read_text(errors="replace"):
                processes.add(int(entry.name))
        except OSError:  # the process exited meanwhile
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
    """Return one line for each trace that was not there before."""
    now = traces()
    rows: Sequence[tuple[str, frozenset[Any], frozenset[Any]]] = (
        ("network namespace", now.namespaces, before.namespaces),
        ("link", now.links, before.links),
        ("BPF program", now.programs, before.programs),
        ("process", now.processes, before.processes),
    )
    return [f"{kind} {item}" for kind, after, earlier in rows for item in sorted(after - earlier)]


def left_after_a_second(before: Traces) -> list[str]:
    """Wait until nothing has disappeared for a second, and return what is left, one line each.

    The kernel frees programs and namespaces after a grace period, and function hooks one by one.
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
    """Return the pid of a descendant that is a traffic program with `word` in its command line, or None.

    Programs that only check their options (--check) are skipped.
    """
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
    """Mark parameters of a test as `all`: that case runs in `make test-all` only."""
    return pytest.param(*values, marks=pytest.mark.all)


def is_root() -> bool:
    return os.geteuid() == 0

"""The live tests of this tree on other kernels, in QEMU, and what came of it: a table, and docs/KERNELS.md.

    .venv/bin/python3 -P tests/kernels/matrix.py            all kernels; writes docs/KERNELS.md
    .venv/bin/python3 -P tests/kernels/matrix.py 6.12 7.x   some; only prints

Each kernel is fetched (fetch.sh) and booted once (boot.sh); one script runs in it (inside). What the guests
said is kept in .output/kernels/NAME. A kernel that cannot be downloaded, does not boot or fails one test
fails the whole run.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KEPT = ROOT / ".output" / "kernels"
DOCUMENT = ROOT / "docs" / "KERNELS.md"

# How many times slower a guest is than its host where tests wait (COPYSCOPE_SLOW, tests/live/profiling.py).
SLOW = 3
TEST_TIMEOUT_S = 240
GUEST_TIMEOUT_S = 900

# Two network cards on one cable that leads nowhere else, for --topology nics.
CABLED_PAIR = (
    *("-netdev", "hubport,id=a,hubid=0", "-device", "e1000,netdev=a,mac=52:54:00:00:00:0a"),
    *("-netdev", "hubport,id=b,hubid=0", "-device", "e1000,netdev=b,mac=52:54:00:00:00:0b"),
)
NICS = "eth0,eth1"


@dataclass(frozen=True)
class Kernel:
    """One row of the matrix: the newest kernel of a Debian suite."""

    name: str
    suite: str
    arch: str = "amd64"
    qemu: tuple[str, ...] = CABLED_PAIR


KERNELS = (
    Kernel("5.10", "bullseye"),
    Kernel("6.1", "bookworm"),
    Kernel("6.12", "trixie"),
    Kernel("7.x", "sid"),
)

# The only live tests that stay out of the guests, by how their ids begin (pytest --deselect).
LEFT_OUT = {
    "test_perf_agreement.py": "needs thousands of samples: minutes in a guest",
    "test_perf_stat.py": "about perf, not the kernel",
    **{
        f"test_profile_faults.py::test_sigkill_at_any_moment_leaves_nothing[{seed}]": "one of five is enough"
        for seed in (1, 2, 3, 4)
    },
    "test_profile_truth.py::test_identities_hold[4-": "those with one thread run: each takes 10 s",
    **{
        f"test_profile_{name}": "the same on every kernel, and 10 s each"
        for name in (
            "faults.py::test_a_full_disk_costs_the_file_but_not_the_table",
            "faults.py::test_an_out_directory_that_cannot_be",
            "faults.py::test_memlock_too_low_says_the_arithmetic",
            "faults.py::test_without_root_it_says_what_to_type",
            "truth.py::test_the_table_is_for_people",
        )
    },
}


@dataclass
class Outcome:
    """What one kernel came to."""

    kernel: Kernel
    release: str = "?"
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    hooks: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    doctor: str = "?"
    limits: list[str] = field(default_factory=list)
    tests: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    unattributed: dict[str, float] = field(default_factory=dict)
    unknown: Counter[str] = field(default_factory=Counter)


def run_kernel(kernel: Kernel) -> Outcome:
    """Fetch, boot, read: whatever goes wrong becomes a line of `problems`."""
    outcome = Outcome(kernel)
    kept = KEPT / kernel.name
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    fetch = subprocess.run(
        [HERE / "fetch.sh", kernel.suite, kernel.arch], stdout=subprocess.PIPE, text=True, check=False
    )
    if fetch.returncode != 0:
        outcome.problems.append(f"{kernel.suite}-{kernel.arch} cannot be downloaded (above)")
        return outcome
    began = time.monotonic()
    status = boot(kernel, fetch.stdout.strip(), kept)
    outcome.seconds = time.monotonic() - began
    if status != 0:
        outcome.problems.append(f"the guest ended with status {status}: see {kept.relative_to(ROOT)}/log.txt")
    read_results(kept, outcome)
    return outcome


def boot(kernel: Kernel, root: str, kept: Path) -> int:
    inside = ["tests/kernels/inside", "results", "-v", f"--timeout={TEST_TIMEOUT_S}"]
    inside += [f"--deselect=tests/live/{begin}" for begin in LEFT_OUT]
    command = f"COPYSCOPE_SLOW={SLOW} COPYSCOPE_NICS={NICS} {shlex.join([*inside, 'tests/live'])}"
    share = f"local,id=results,path={kept},security_model=none,multidevs=remap"
    argv = [str(HERE / "boot.sh"), root, command, "-fsdev", share]
    argv += ["-device", "virtio-9p-pci,fsdev=results,mount_tag=results", *kernel.qemu]
    with (kept / "log.txt").open("w") as log:
        return subprocess.run(
            argv,
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
            env={"COPYSCOPE_GUEST_TIMEOUT_S": str(GUEST_TIMEOUT_S), **os.environ},
        ).returncode


# -- what a guest left ------------------------------------------------------------------------------------


def read_results(kept: Path, outcome: Outcome) -> None:
    for name, read in (
        ("release", read_release),
        ("probe.json", read_probe),
        ("doctor.json", read_doctor),
        ("tests.jsonl", read_tests),
        ("dmesg.txt", read_kernel_log),
        ("log.txt", read_kernel_log),  # a guest that hung left no dmesg.txt
    ):
        try:
            read((kept / name).read_text(errors="replace"), outcome)
        except (OSError, ValueError, KeyError) as error:
            outcome.problems.append(f"{name}: nothing to read: {error}")
    for path in sorted(kept.glob("ledger-*.json")):
        read_ledger(path.stem.removeprefix("ledger-"), json.loads(path.read_text()), outcome)


def read_release(text: str, outcome: Outcome) -> None:
    outcome.release = text.strip()


def read_probe(text: str, outcome: Outcome) -> None:
    probe = json.loads(text)
    outcome.hooks = probe["hooks"]
    outcome.events = probe["sampler"]["events"]
    outcome.problems += [
        f"required hook {hook['id']}: {hook['state']}: {hook['reason']}"
        for hook in outcome.hooks
        if hook["required"] and hook["state"] not in ("attached", "unused")
    ]


def read_doctor(text: str, outcome: Outcome) -> None:
    said = json.loads(text)
    outcome.doctor = said["sentence"]
    outcome.limits = [
        f"{row['name']}: {row['fact']}" for row in said["findings"] if row["status"] in ("limited", "missing")
    ]
    if not said["works"]:
        outcome.problems.append(f"doctor: {said['sentence']}")


def read_tests(text: str, outcome: Outcome) -> None:
    for row in map(json.loads, text.splitlines()):
        outcome.tests[row["outcome"]] += 1
        if row["outcome"] == "failed":
            name = row["id"].removeprefix("tests/live/")
            outcome.problems.append(f"{name}: {' '.join(row['said'].split())[:300]}")
        elif row["outcome"] == "skipped":
            outcome.skipped[row["said"]] += 1
    if not outcome.tests["passed"]:
        outcome.problems.append("no test passed")


# A soft lockup counts, too: a sampling timer that is faster than its own handler looks like that.
COMPLAINT = re.compile(r"^\[ *\d+\.\d+\] .*(WARNING: |BUG: |Oops|general protection|KASAN|UBSAN)")


def read_kernel_log(text: str, outcome: Outcome) -> None:
    lines = [line.strip()[:200] for line in text.splitlines() if COMPLAINT.search(line)]
    known = {problem.removeprefix("kernel log: ") for problem in outcome.problems}
    outcome.problems += [f"kernel log: {line}" for line in dict.fromkeys(lines) if line not in known]


def read_ledger(impl: str, record: dict[str, Any], outcome: Outcome) -> None:
    """The share of CPU time that the taxonomy could not name, and the names that it did not know."""
    total = unknown = 0
    for row in record["samples"]:
        if row["event"] != "cpu-clock" or row["side"] == "other":
            continue
        total += row["weight"]
        if row["category"] == "unattributed":
            unknown += row["weight"]
            outcome.unknown[row["symbol"]] += row["samples"]
    if not total:
        outcome.problems.append(f"profile {impl}: no samples")
        return
    outcome.unattributed[impl] = unknown / total
    if unknown / total >= 0.05:
        outcome.problems.append(f"profile {impl}: unattributed {unknown / total:.1%}, not below 5 %")
    if not record["verdict"]["valid"]:
        outcome.problems.append(f"profile {impl}: not valid: {'; '.join(record['verdict']['reasons'])}")


# -- what is printed and kept -----------------------------------------------------------------------------


def table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that is also readable as text."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def summary(outcomes: Iterable[Outcome]) -> str:
    rows = [
        [
            "kernel",
            "hooks attached, unused, missing, refused",
            "sampler",
            "unattributed",
            "passed",
            "failed",
            "skipped",
            "result",
            "s",
        ]
    ]
    for outcome in outcomes:
        states = Counter(hook["state"] for hook in outcome.hooks)
        known = ("attached", "unused", "missing", "refused")
        counts = [str(states[state]) for state in known]
        counts += [f"{n} {state}" for state, n in states.items() if state not in known]
        sampled = [event["name"] for event in outcome.events if event["status"] == "sampled"]
        rows.append(
            [
                outcome.release if outcome.release != "?" else outcome.kernel.name,
                ", ".join(counts) if outcome.hooks else "?",
                ", ".join(sampled) or "none",
                ", ".join(f"{share:.1%}" for share in outcome.unattributed.values()) or "?",
                *(str(outcome.tests[what]) for what in ("passed", "failed", "skipped")),
                "FAILED" if outcome.problems else "ok",
                f"{outcome.seconds:.0f}",
            ]
        )
    return table(rows)


def hook_table(outcomes: Sequence[Outcome]) -> str:
    """How each hook attaches, kernel by kernel."""
    names = list(dict.fromkeys((hook["instrument"], hook["id"]) for out in outcomes for hook in out.hooks))
    rows = [["instrument", "hook", *(outcome.kernel.name for outcome in outcomes)]]
    for instrument, name in names:
        cells = []
        for outcome in outcomes:
            found = [hook for hook in outcome.hooks if (hook["instrument"], hook["id"]) == (instrument, name)]
            cells.append(hook_cell(found[0]) if found else "-")
        rows.append([instrument, name, *cells])
    return table(rows)


def hook_cell(hook: dict[str, Any]) -> str:
    if hook["state"] == "attached":
        return f"{hook['how']} {hook['symbol']}"
    return str(hook["state"])


def problems_of(outcomes: Iterable[Outcome]) -> list[str]:
    return [f"{outcome.kernel.name}: {problem}" for outcome in outcomes for problem in outcome.problems]


def bullets(lines: Iterable[str]) -> str:
    return "".join(f"- {line}\n" for line in lines) or "- none\n"


def document(outcomes: Sequence[Outcome]) -> str:
    """docs/KERNELS.md."""
    made = datetime.now(UTC).strftime("%Y-%m-%d")
    qemu = subprocess.run(
        ["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=False
    ).stdout.split("\n")[0]
    accel = os.environ.get("COPYSCOPE_ACCEL", "tcg").upper()
    skipped = [
        f"{o.kernel.name}: {n} x {reason}" for o in outcomes for reason, n in sorted(o.skipped.items())
    ]
    reasons = [
        f"{o.kernel.name}: {hook['id']}: {hook['state']}: {hook['reason']}"
        for o in outcomes
        for hook in o.hooks
        if hook["state"] not in ("attached", "unused")
    ]
    unknown = [
        f"{o.kernel.name}: {', '.join(f'{symbol} ({n})' for symbol, n in o.unknown.most_common(12))}"
        for o in outcomes
        if o.unknown
    ]
    return f"""<!-- Made by `make check-kernels` from what the guests said; the next run overwrites it. -->
# Kernels: what works where

Made by `make check-kernels` on {made}: the newest kernel of each of four Debian suites on 2 processors,
{qemu}, {accel}. On x86-64 the emulator has no PMU. The tests are those of
`make check-live`, unchanged.

{summary(outcomes)}
*unattributed*: the share of both sides' CPU time that no row of the taxonomy names, in one run of 4 s with
one_copy and one with zero_copy. *s*: from power-on to power-off.

## Hooks

{hook_table(outcomes)}
Not there, and why:

{bullets(reasons)}
## Failures

{bullets(problems_of(outcomes))}
## What doctor says

{bullets(f"{o.kernel.name}: {o.doctor}" for o in outcomes)}
## Skipped tests

{bullets(skipped)}
Left out of the guests, see `LEFT_OUT` in tests/kernels/matrix.py:

{bullets(f"`{begin}`: {reason}" for begin, reason in LEFT_OUT.items())}
## Symbols that the taxonomy does not know (samples)

{bullets(unknown)}"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Run the live tests on other kernels in QEMU.")
    parser.add_argument("names", nargs="*", metavar="KERNEL", help=", ".join(k.name for k in KERNELS))
    parser.add_argument("--jobs", type=int, default=1, help="guests at a time (default: 1)")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - {kernel.name for kernel in KERNELS}
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not in the matrix")
    chosen = [kernel for kernel in KERNELS if not options.names or kernel.name in options.names]

    def one(kernel: Kernel) -> Outcome:
        print(f"  GUEST {kernel.name} ({kernel.suite} {kernel.arch})", flush=True)
        outcome = run_kernel(kernel)
        said = f"{len(outcome.problems)} problems" if outcome.problems else "ok"
        print(f"  GUEST {kernel.name}: {said}, {outcome.seconds:.0f} s", flush=True)
        return outcome

    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(one, chosen))
    print(f"\n{summary(outcomes)}")
    problems = problems_of(outcomes)
    print("\n".join(problems))
    if not options.names:
        DOCUMENT.write_text(document(outcomes))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

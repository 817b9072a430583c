# SPDX-License-Identifier: GPL-2.0-only
"""The outcome of one kernel: read from the files of its guests, kept as results/kernels/NAME.json."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from copyscope.commands.drill import read_expected
from copyscope.doctor.drill.trials import DrillRow, list_changes
from figures import figures_of
from ways import kept_ways

# States of hooks that are rightly not attached: another hook is better, or nothing requested the hook.
IDLE = ("unused", "available")
TRACEPOINT = "tp_btf"
# Name of the boot that runs some tests again.
AGAIN = "again"


@dataclass
class Outcome:
    """Outcome of one kernel of the matrix."""

    name: str
    suite: str
    arch: str
    made: str
    emulator: str
    processors: int
    extent: str
    release: str = "?"
    hooks: list[dict[str, Any]] = field(default_factory=list)
    sampler_events: list[dict[str, Any]] = field(default_factory=list)
    doctor: dict[str, Any] | None = None
    unattributed: dict[str, float] = field(default_factory=dict)
    unknown_symbols: dict[str, int] = field(default_factory=dict)
    tests: list[dict[str, Any]] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    # Reasons of invalid runs that are no fault of the programs or of the kernel.
    remarks: list[str] = field(default_factory=list)
    # Test -> day on which it was run again, alone.
    again: dict[str, str] = field(default_factory=dict)
    boots: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def tier(self) -> str:
        """Return `exact` if functions can be hooked, `sampled` if only tracepoints and the sampler work.

        --instruments auto does not use hooks of send and receive by kprobe (copyscope.plan.tier).
        """
        attached = {hook["id"]: hook["how"] for hook in self.hooks if hook["state"] == "attached"}
        if not {"send", "receive"} <= attached.keys():
            return "sampled" if attached else "?"
        return (
            "exact by name, sampled by auto"
            if "kprobe" in (attached["send"], attached["receive"])
            else "exact"
        )

    def count(self, outcome: str) -> int:
        return sum(row["outcome"] == outcome for row in self.tests)

    def require(self, tests: Iterable[str]) -> None:
        """Add a problem for each of these tests that was skipped, because it must run on this kernel."""
        required = set(tests)
        self.problems += [
            f"{row['id']}: skipped: {row['said']}"
            for row in self.tests
            if row["outcome"] == "skipped" and row["id"] in required
        ]

    def forget(self, tests: Iterable[str], day: str) -> None:
        """Remove results of these tests, or files of tests: they are run again on this day."""
        begins = tuple(f"{test}{end}" for test in tests for end in (":", "["))
        self.tests = [row for row in self.tests if not f"{row['id']}:".startswith(begins)]
        stale = (*begins, f"{AGAIN}: ")
        self.problems = [problem for problem in self.problems if not problem.startswith(stale)]
        self.again |= dict.fromkeys(tests, day)

    def write(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        shown = asdict(self) | {"tier": self.tier}
        (directory / f"{self.name}.json").write_text(json.dumps(shown, indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        kept = json.loads(path.read_text())
        kept.pop("tier")
        return cls(**kept)


def read_boot(kept: Path, outcome: Outcome, *, surveyed: bool, tested: bool) -> None:
    """Add the results of one boot: always its kernel log, also its survey and tests if it has them."""
    survey: tuple[tuple[str, Callable[[str, Outcome], None]], ...] = (
        ("release", read_release),
        ("probe.json", read_probe),
        *((("doctor.json", read_doctor), ("drill.json", read_drill)) if outcome.arch == "amd64" else ()),
    )
    always = (
        *((("release", read_release),) if outcome.again else ()),
        *((("tests.jsonl", read_tests),) if tested else ()),
        ("dmesg.txt", read_kernel_log),
        ("log.txt", read_kernel_log),  # a guest that hung left no dmesg.txt
    )
    for name, read in (*(survey if surveyed else ()), *always):
        try:
            read((kept / name).read_text(errors="replace"), outcome)
        except (OSError, ValueError, KeyError) as error:
            outcome.problems.append(f"{kept.name}: {name}: nothing to read: {error}")
    if (kept / "figures.json").exists():
        outcome.figures |= json.loads((kept / "figures.json").read_text())
    for path in sorted(kept.glob("ledger-*.json")):
        read_ledger(path.stem.removeprefix("ledger-"), json.loads(path.read_text()), outcome)


def read_release(text: str, outcome: Outcome) -> None:
    if outcome.again and text.strip() != outcome.release:
        outcome.problems.append(f"{AGAIN}: on {text.strip()}, the other tests on {outcome.release}")
        return
    outcome.release = text.strip()


def read_probe(text: str, outcome: Outcome) -> None:
    probe = json.loads(text)
    outcome.hooks = probe["hooks"]
    outcome.sampler_events = probe["sampler"]["events"]
    outcome.problems += [
        f"required hook {hook['id']}: {hook['state']}: {hook['reason']}"
        for hook in outcome.hooks
        if hook["required"] and hook["state"] not in ("attached", "unused")
    ]


def read_doctor(text: str, outcome: Outcome) -> None:
    outcome.doctor = json.loads(text)
    if not outcome.doctor["works"]:
        outcome.problems.append(f"doctor: {outcome.doctor['sentence']}")


def read_drill(text: str, outcome: Outcome) -> None:
    """Add a problem for each send method that copies now and did not before, or the reverse."""
    kept = kept_ways(outcome.name)
    if kept.exists():
        rows = [DrillRow(**row) for row in json.loads(text)["ways"]]
        outcome.problems += [f"drill: {line}" for line in list_changes(rows, read_expected(kept))]


def read_tests(text: str, outcome: Outcome) -> None:
    new_rows = [json.loads(line) for line in text.splitlines()]
    for row in new_rows:
        row["id"] = row["id"].removeprefix("tests/live/").removeprefix("tests/kernels/")
        if row["outcome"] == "failed":
            outcome.problems.append(f"{row['id']}: {' '.join(row['said'].split())[:300]}")
    outcome.tests += new_rows
    if not any(row["outcome"] != "failed" for row in new_rows):
        outcome.problems.append("no test passed")


# Includes soft lockups: they appear if a sampling timer is faster than its handler.
COMPLAINT = re.compile(r"^\[ *\d+\.\d+\] .*(WARNING: |BUG: |Oops|general protection|KASAN|UBSAN)")


def read_kernel_log(text: str, outcome: Outcome) -> None:
    lines = [line.strip()[:200] for line in text.splitlines() if COMPLAINT.search(line)]
    known_lines = {problem.removeprefix("kernel log: ") for problem in outcome.problems}
    outcome.problems += [f"kernel log: {line}" for line in dict.fromkeys(lines) if line not in known_lines]


def read_ledger(impl: str, record: dict[str, Any], outcome: Outcome) -> None:
    """Add figures, the share of CPU time without a rule of the taxonomy, and the symbols without a rule."""
    outcome.figures |= figures_of(record)
    total = unknown = 0
    names: Counter[str] = Counter(outcome.unknown_symbols)
    for row in record["samples"]:
        if row["event"] != "cpu-clock" or row["side"] == "other":
            continue
        total += row["weight"]
        if row["category"] == "unattributed":
            unknown += row["weight"]
            names[row["symbol"]] += row["samples"]
    if not total:
        outcome.problems.append(f"profile {impl}: no samples")
        return
    outcome.unknown_symbols = dict(names.most_common())
    outcome.unattributed[impl] = unknown / total
    if unknown / total >= 0.05:
        outcome.problems.append(f"profile {impl}: unattributed {unknown / total:.1%}, not below 5 %")
    if not record["verdict"]["valid"]:
        reasons = record["verdict"]["reasons"]
        # The kernel skips a BPF program that already runs on the CPU: a loss that makes a run invalid
        # (docs/method.md). Any other reason is a failure.
        lost = [reason for reason in reasons if reason.startswith("loss: recursion_")]
        if lost:
            outcome.remarks.append(f"profile {impl}: not valid: {'; '.join(lost)}")
        if len(lost) < len(reasons):
            others = "; ".join(reason for reason in reasons if reason not in lost)
            outcome.problems.append(f"profile {impl}: not valid: {others}")

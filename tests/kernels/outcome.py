"""What one kernel came to: read from what its guests left, kept as results/kernels/NAME.json."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from copyscope.commands.drill import read_expected
from copyscope.drill.trials import Row, changes
from figures import figures_of
from ways import kept_ways

# Hooks of these states are not attached, and that is fine: something better is, or nobody asked.
IDLE = ("unused", "available")
TRACEPOINT = "tp_btf"
# The boot of tests that are run again alone.
AGAIN = "again"


@dataclass
class Outcome:
    """One kernel of the matrix, as data."""

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
    # What a run says against itself, as it should: no fault of the programs, nor of the kernel.
    remarks: list[str] = field(default_factory=list)
    # Tests that were run once more, alone, and on which day.
    again: dict[str, str] = field(default_factory=dict)
    boots: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def tier(self) -> str:
        """`exact` where functions can be hooked, `sampled` where only tracepoints and the sampler work.

        Where a send and a receive are hooked by kprobe, auto does not hook them (copyscope.plan.tier).
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
        """A test that was chosen by name has something to say on this kernel: skipped is failed."""
        wanted = set(tests)
        self.problems += [
            f"{row['id']}: skipped: {row['said']}"
            for row in self.tests
            if row["outcome"] == "skipped" and row["id"] in wanted
        ]

    def forget(self, tests: Iterable[str], day: str) -> None:
        """What was found of these tests, or files of tests: they are run again on this day."""
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
    """Add what one boot left: the kernel log always, the survey and the tests when it made some."""
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
    """What copies now and did not when the table of this kernel was kept, or the other way round."""
    kept = kept_ways(outcome.name)
    if kept.exists():
        rows = [Row(**row) for row in json.loads(text)["ways"]]
        outcome.problems += [f"drill: {line}" for line in changes(rows, read_expected(kept))]


def read_tests(text: str, outcome: Outcome) -> None:
    found = [json.loads(line) for line in text.splitlines()]
    for row in found:
        row["id"] = row["id"].removeprefix("tests/live/").removeprefix("tests/kernels/")
        if row["outcome"] == "failed":
            outcome.problems.append(f"{row['id']}: {' '.join(row['said'].split())[:300]}")
    outcome.tests += found
    if not any(row["outcome"] != "failed" for row in found):
        outcome.problems.append("no test passed")


# A soft lockup counts, too: a sampling timer that is faster than its own handler looks like that.
COMPLAINT = re.compile(r"^\[ *\d+\.\d+\] .*(WARNING: |BUG: |Oops|general protection|KASAN|UBSAN)")


def read_kernel_log(text: str, outcome: Outcome) -> None:
    lines = [line.strip()[:200] for line in text.splitlines() if COMPLAINT.search(line)]
    known = {problem.removeprefix("kernel log: ") for problem in outcome.problems}
    outcome.problems += [f"kernel log: {line}" for line in dict.fromkeys(lines) if line not in known]


def read_ledger(impl: str, record: dict[str, Any], outcome: Outcome) -> None:
    """The share of CPU time that the taxonomy could not name, the names that it did not know, and figures."""
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
        # A program that meets itself on a processor is not run: a loss, which marks the run (docs/method.md).
        # Whatever else a run says against itself is a failure, with losses or without.
        lost = [reason for reason in reasons if reason.startswith("loss: recursion_")]
        if lost:
            outcome.remarks.append(f"profile {impl}: not valid: {'; '.join(lost)}")
        if len(lost) < len(reasons):
            others = "; ".join(reason for reason in reasons if reason not in lost)
            outcome.problems.append(f"profile {impl}: not valid: {others}")

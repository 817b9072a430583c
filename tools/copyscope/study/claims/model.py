"""What a claim is, what can be found about it, and the runs that it is judged by."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import Struct

from copyscope.compare.estimates import Estimate, Missing, Point
from copyscope.compare.settings import Scalar, settings
from copyscope.crossover.crossover import surroundings
from copyscope.grouping import gathered, grouped
from copyscope.record.segments import Record

Verdict = Literal["holds", "refuted", "undetermined here"]
HOLDS: Verdict = "holds"
REFUTED: Verdict = "refuted"
UNDETERMINED: Verdict = "undetermined here"

Row = dict[str, Any]
Key = tuple[str, int, int]  # strategy, threads, size in bytes


class Claim(Struct, frozen=True, forbid_unknown_fields=True):
    """One row of claims.toml. `needs`: setting -> the values that its runs must have."""

    id: str
    text: str
    sources: tuple[str, ...]
    check: str
    needs: Mapping[str, tuple[Scalar, ...]]
    experiments: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """What a check came to: `rows` are the numbers of the records that it rests on."""

    verdict: Verdict
    evidence: str
    rows: list[Row] = field(default_factory=list)


@dataclass(frozen=True)
class Judgement:
    """The answer to one claim on this machine."""

    id: str
    claim: str
    source: str
    verdict: Verdict
    evidence: str
    rows: list[Row]
    modelled: Finding | None  # in a simulated machine; no part of the verdict
    io_uring: Finding | None  # of the same sends through io_uring; no part of it either


Check = Callable[["Runs"], Finding]


@dataclass(frozen=True)
class Runs:
    """The valid runs of one setting that a claim needs, by strategy, threads and size."""

    name: str
    points: Mapping[Key, Point]

    @property
    def records(self) -> list[Record]:
        return [record for key in sorted(self.points) for record in self.points[key].records]

    def of(self, impl: str) -> list[Record]:
        """The runs of one strategy."""
        return [record for record in self.records if record["workload"]["impl"] == impl]

    def values(self, name: str) -> set[Scalar]:
        """What a setting was in these runs."""
        return {settings(record)[name] for record in self.records}

    def pairs(self, first: str, second: str) -> list[tuple[int, int, Point, Point]]:
        """(threads, size, point of the first, point of the second) where both were measured."""
        return [
            (threads, size, point, self.points[second, threads, size])
            for (impl, threads, size), point in sorted(self.points.items())
            if impl == first and (second, threads, size) in self.points
        ]


def select(records: Sequence[Record], claim: Claim) -> list[Runs]:
    """The valid runs that a claim needs; those of different settings (offloads, experiments) apart."""
    valid = [(record, settings(record)) for record in records if record["verdict"]["valid"]]
    apart = gathered(
        ((record["run"]["experiment"] or "profile", str(sorted(surroundings(found, record).items()))), record)
        for record, found in valid
        if all(found[name] in values for name, values in claim.needs.items())
    )
    runs = [
        Runs(name, {key: _point(key, rows) for key, rows in grouped(members, _key).items()})
        for (name, _), members in apart.items()
    ]
    return sorted(runs, key=lambda one: one.name)


def _key(record: Record) -> Key:
    work = record["workload"]
    return str(work["impl"]), int(work["threads"]), int(work["size_bytes"])


def _point(key: Key, rows: Sequence[Record]) -> Point:
    """Runs of one strategy, threads and size, whatever else follows from the size in them."""
    ordered = sorted(rows, key=lambda row: (row["run"]["repeat"], row["run"]["id"]))
    return Point(dict(zip(("impl", "threads", "size"), key, strict=True)), tuple(ordered))


def missing(runs: Sequence[Runs], claim: Claim) -> list[str]:
    """Which values of the needed settings no run has, as `size 64, 256`."""
    texts = []
    for name, values in claim.needs.items():
        have = {value for one in runs for value in one.values(name)}
        lacking = [str(value) for value in values if value not in have]
        if lacking:
            texts.append(f"{name} {', '.join(lacking)}")
    return texts


def together(findings: Sequence[tuple[str, Finding]]) -> Finding:
    """One finding out of several settings: a general claim falls with one of them, and holds with all."""
    if len(findings) == 1:
        return findings[0][1]
    verdicts = {finding.verdict for _, finding in findings}
    verdict = REFUTED if REFUTED in verdicts else HOLDS if verdicts == {HOLDS} else UNDETERMINED
    evidence = "; ".join(f"{name}: {finding.verdict}: {finding.evidence}" for name, finding in findings)
    return Finding(verdict, evidence, [row for _, finding in findings for row in finding.rows])


def estimate_row(what: str, found: Estimate | Missing, runs: Sequence[Record], **more: Any) -> Row:
    """An estimate as a row of evidence, with the runs behind it."""
    row: Row = {"what": what, **more, "runs": [record["run"]["id"] for record in runs]}
    if isinstance(found, Missing):
        return row | {"value": None, "reason": found.reason}
    return row | {"value": found.value, "low": found.low, "high": found.high, "level": found.level}


def interval_text(found: Estimate) -> str:
    """A ratio as text: 0.83 (0.79 to 0.88)."""
    if found.low is None or found.high is None:
        return f"{found.value:.2f} (one repeat: no interval)"
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"

"""The claims of the published reports, judged by records: pure functions, one per claim.

experiments/claims.toml says what is claimed, by whom, and which runs decide it. A claim that was made about
how something works is judged by what happened (which function copied, how often the TLB was flushed), not by
a difference in speed that it is said to explain.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from msgspec import convert

from copyscope import paths
from copyscope.compare.settings import SETTINGS
from copyscope.errors import UsageError
from copyscope.files import regular_file
from copyscope.record.segments import Record
from copyscope.study.claims import caches, copies, in_model, in_rings, mechanisms, ordering
from copyscope.study.claims.model import (
    HOLDS,
    REFUTED,
    UNDETERMINED,
    Check,
    Claim,
    Finding,
    Judgement,
    missing,
    select,
    together,
)
from copyscope.study.modelled import ModelPoint

FILE = paths.ROOT / "experiments" / "claims.toml"
SCHEMA = 1

CHECKS: dict[str, Check] = {
    "one_zero_per_field": ordering.one_zero_per_field,
    "two_one_crossover": ordering.two_one_crossover,
    "zero_never_beats_two": ordering.zero_never_beats_two,
    "copied_where": copies.copied_where,
    "socket_buffer_then_dma": copies.socket_buffer_then_dma,
    "gather_then_socket_buffer": copies.gather_then_socket_buffer,
    "iovec_without_copy": copies.iovec_without_copy,
    "pinning_flushes": mechanisms.pinning_flushes,
    "completion_switches": mechanisms.completion_switches,
    "llc_drop": caches.llc_drop,
    "zero_fewest_llc": caches.zero_fewest_llc,
    "l1_drop": caches.l1_drop,
    "collapse_by_switches": mechanisms.collapse_by_switches,
    "latency_of_threads": mechanisms.latency_of_threads,
    "switch_per_send": mechanisms.switch_per_send,
    "stack_on_loopback": mechanisms.stack_on_loopback,
    "zero_is_real": caches.zero_is_real,
    "zero_wins_on_a_nic": ordering.zero_wins_on_a_nic,
}


def judge_one(claim: Claim, records: Sequence[Record], points: Sequence[ModelPoint] = ()) -> Judgement:
    """One claim. Runs that are missing turn `holds` into `undetermined here`: they could have refuted it.

    `points`: of simulated machines; what they say stands beside the verdict and is no part of it, as does
    what runs through io_uring say.
    """
    finding = _find(claim, records)
    rings = in_rings.stand_ins(claim, records)
    return Judgement(
        claim.id,
        claim.text,
        ", ".join(claim.sources),
        finding.verdict,
        finding.evidence,
        finding.rows,
        in_model.judge(claim.check, points),
        in_rings.said(_find(claim, rings)) if rings else None,
    )


def _find(claim: Claim, records: Sequence[Record]) -> Finding:
    runs = select(records, claim)
    lacking = missing(runs, claim)
    if not runs:
        needs = "; ".join(f"{name} {', '.join(map(str, values))}" for name, values in claim.needs.items())
        note = f"{claim.note}: " if claim.note else ""
        where = f": run {' or '.join(claim.experiments)}" if claim.experiments else ""
        return Finding(UNDETERMINED, f"{note}no valid run of {needs}{where}")
    finding = together([(one.name, CHECKS[claim.check](one)) for one in runs])
    if lacking and finding.verdict != REFUTED:
        text = f"runs are missing ({'; '.join(lacking)}); {finding.evidence}"
        return Finding(UNDETERMINED, text, finding.rows)
    return finding


def read(path: Path = FILE) -> list[Claim]:
    """The claims in a file. Raises UsageError: one line with the file, the claim, the cause."""
    where = f"claims: {path}"
    try:
        found = tomllib.loads(regular_file.read(path).decode())
    except OSError as error:
        raise UsageError(f"{where}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, or numbers without an end
        raise UsageError(f"{where}: not TOML: {error}") from error
    rows = found.get("claim")
    if set(found) != {"claim"} or not isinstance(rows, list) or not rows:
        raise UsageError(f"{where}: expected [[claim]] tables and nothing else")
    claims: dict[str, Claim] = {}
    for number, row in enumerate(rows, start=1):
        name = row["id"] if isinstance(row, dict) and "id" in row else f"claim number {number}"
        try:
            claim = convert(row, Claim)
            _check(claim)
        except ValueError as error:
            raise UsageError(f"{where}: {name}: {error}") from error
        if claim.id in claims:
            raise UsageError(f"{where}: {name}: comes twice")
        claims[claim.id] = claim
    return list(claims.values())


def _check(claim: Claim) -> None:
    """What its types do not say. Raises ValueError."""
    if claim.check not in CHECKS:
        raise ValueError(f"check {claim.check!r}: no such check: one of {', '.join(CHECKS)}")
    for name, values in claim.needs.items():
        if name not in SETTINGS:
            raise ValueError(f"needs.{name}: no such setting: one of {', '.join(SETTINGS)}")
        if not values:
            raise ValueError(f"needs.{name}: expected a list of values")


def as_json(found: Sequence[Judgement], records: Sequence[Record]) -> dict[str, Any]:
    """claims.json (docs/reference/verdicts.md explains each key)."""
    verdicts = (HOLDS, REFUTED, UNDETERMINED)
    first = records[0] if records else None
    machine = {} if first is None else {k: first["machine"][k] for k in ("hostname", "kernel", "cpu_model")}
    return {
        "schema": SCHEMA,
        "kind": "claims",
        "machine": machine,
        "experiments": sorted({str(record["run"]["experiment"]) for record in records}),
        "runs": len(records),
        "valid_runs": sum(1 for record in records if record["verdict"]["valid"]),
        "tally": {verdict: sum(one.verdict == verdict for one in found) for verdict in verdicts},
        "claims": [asdict(one) for one in found],
    }

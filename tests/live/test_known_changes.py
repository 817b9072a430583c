"""By hand: what `compare` says of equal runs here, and of a strategy that became 5 % dearer.

COPYSCOPE_BLOCKS=90 lets copyscope compare make that many blocks of one_copy beside one_copy, and beside
one_copy that rewrites each message before it sends it (--touch), a pass over its memory more. Comparisons are
of blocks chosen by chance, as many as it makes by default, with its second look where the first leaves the
verdict open; what the slowed runs differ by over all blocks is made 5 %. It is found by a verdict, or by the
row that `compare` names as sure. COPYSCOPE_REPEATS=40: so many blocks each, and one look. COPYSCOPE_KEPT=DIR:
blocks of before count, too; COPYSCOPE_LIMIT_S=60: no more are made after so many seconds.
"""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from copyscope import paths, stats
from copyscope.commands import compare, diff
from copyscope.judge import difference
from copyscope.judge.difference import (
    CPU,
    GOODPUT,
    UNSURE,
    WORSE,
    How,
    cost_rows,
    enough,
    metric_row,
    verdict_of,
)
from copyscope.judge.estimates import row_costs

BLOCKS = int(os.environ.get("COPYSCOPE_BLOCKS", "0"))
REPEATS = os.environ.get("COPYSCOPE_REPEATS")
LOOKS, LEVEL = (
    ((int(REPEATS),), stats.LEVEL) if REPEATS is not None else (compare.LOOKS, compare.LEVEL_OF_TWO)
)
LIMIT_S = float(os.environ.get("COPYSCOPE_LIMIT_S", "600"))
WAYS = {"equal": "one_copy", "slowed": "one_copy --touch"}
METRICS = (GOODPUT, CPU)

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.timeout(LIMIT_S + 120),
    pytest.mark.skipif(not BLOCKS, reason="by hand: COPYSCOPE_BLOCKS=90"),
]
Run = Any  # its goodput, its CPU time, its rows
USER = ("user", "sender", "user")  # where the slowed runs rewrite their messages
Blocks = list[tuple[Run, Run]]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(os.environ.get("COPYSCOPE_KEPT") or tmp_path_factory.mktemp("blocks"))


def measured(kept: Path, way: str) -> Blocks:
    """Goodput and CPU time of the runs of each block that is valid."""
    while (missing := BLOCKS - len(found := list(read(kept / way)))) > 0:
        out = kept / way / str(len(list((kept / way).glob("*"))))
        argv: list[str | Path] = [
            paths.ROOT / "bin" / "copyscope",
            "compare",
            "one_copy",
            WAYS[way],
            "--out",
            out,
        ]
        argv += ["--repeat", str(missing), "--quiet", "--noise-out", out / "noise"]
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as compared:
            try:
                compared.wait(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                compared.send_signal(signal.SIGTERM)
                compared.wait(timeout=60)
                return list(read(kept / way))
    return found


def read(chunks: Path) -> Blocks:
    found = []
    for first in sorted(chunks.glob("*/1-one_copy.jsonl.gz")):
        sides = [
            {run.raw.run.repeat: run for run in diff.runs_of(file)}
            for file in (first, first.with_name("2-one_copy.jsonl.gz"))
        ]
        for block in sides[0].keys() & sides[1].keys():
            runs = [side[block] for side in sides]
            if not all(run.derived.verdict.valid for run in runs):
                continue
            values = [{name: difference.read_metric(run, name) for name in METRICS} for run in runs]
            a, b = ({**one, "rows": row_costs(run)} for one, run in zip(values, runs, strict=True))
            found.append((a, b))
    return found


def verdicts(blocks: Blocks, draws: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Of so many comparisons, each of as many blocks as `compare` makes."""
    monkeypatch.setattr(difference, "read_metric", lambda run, name: run[name])
    monkeypatch.setattr(difference, "row_costs", lambda run: run["rows"])
    chance, how = random.Random(1), How(paired=True, level=LEVEL)
    said, asked = Counter[str](), []
    for _ in range(draws):
        drawn = chance.sample(blocks, LOOKS[-1])
        for look in LOOKS:
            before, after = zip(*drawn[:look], strict=True)
            rows = [row for name in METRICS if (row := metric_row(before, after, name, how))]
            verdict = verdict_of(rows)
            if verdict != UNSURE:
                break
        named = any(row.sure and row.verdict == WORSE for row in cost_rows(before, after, how))
        said[f"{verdict}{', a row' * named}"] += 1
        said["found"] += named or verdict == WORSE
        asked.append(enough(rows, (look, look), how) or look)
    print(f"{dict(said)} of {draws}; median of what they ask for: {sorted(asked)[draws // 2]} blocks")
    return said


def changes(blocks: Blocks) -> dict[str, float]:
    """Mean over all blocks, of the logarithms."""
    return {name: fmean(math.log(b[name] / a[name]) for a, b in blocks) for name in METRICS}


def told(way: str, blocks: Blocks) -> None:
    means = {name: f"{math.expm1(value):+.1%}" for name, value in changes(blocks).items()}
    print(f"\n{way}: {len(blocks)} blocks, mean changes {means}: ", end="")


def test_equal_runs_are_called_a_regression_twice_in_forty_at_most(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = measured(kept, "equal")
    told("equal", blocks)
    assert verdicts(blocks, 40, monkeypatch)["found"] <= 2


def test_five_percent_are_found_in_eighteen_of_twenty(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = measured(kept, "slowed")
    told("slowed", blocks)
    wanted, made = {GOODPUT: -math.log(1.05), CPU: math.log(1.05)}, changes(blocks)
    factors = {name: math.exp(wanted[name] - made[name]) for name in METRICS}
    excess = fmean(b["rows"].get(USER, 0.0) - a["rows"].get(USER, 0.0) for a, b in blocks)
    less = excess - 0.05 * fmean(a[CPU] for a, _ in blocks)
    scaled = [
        (
            a,
            {name: b[name] * factors[name] for name in METRICS}
            | {"rows": {**b["rows"], USER: b["rows"].get(USER, 0.0) - less}},
        )
        for a, b in blocks
    ]
    assert verdicts(scaled, 20, monkeypatch)["found"] >= 18

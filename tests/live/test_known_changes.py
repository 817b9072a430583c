# SPDX-License-Identifier: GPL-2.0-only
"""Test by hand: what `compare` reports for equal runs, and for a strategy that became 5 % more expensive.

COPYSCOPE_BLOCKS=90 lets `copyscope compare` measure 90 blocks of one_copy against one_copy, and 90 blocks of
one_copy against one_copy --touch, which passes over each message once more before it is sent. The slowed
runs are scaled so that they differ by exactly 5 % on average.

Each comparison draws blocks at random, as many as `compare` makes by default, and draws more if the first
look leaves the verdict open. A change counts as found if the verdict is "worse" or a row is surely worse.

COPYSCOPE_REPEATS=40: compare 40 blocks, with one look. COPYSCOPE_KEPT=DIR: also use the blocks of earlier
calls in DIR. COPYSCOPE_LIMIT_S=60: measure for at most 60 s.
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
from copyscope.base import paths, stats
from copyscope.commands import compare, diff
from copyscope.judge import difference
from copyscope.judge.difference import (
    CPU,
    GOODPUT,
    UNSURE,
    WORSE,
    ComparisonOptions,
    cost_rows,
    metric_row,
    runs_needed,
    verdict_of,
)
from copyscope.judge.estimates import row_costs

BLOCKS = int(os.environ.get("COPYSCOPE_BLOCKS", "0"))
REPEATS = os.environ.get("COPYSCOPE_REPEATS")
LOOKS, LEVEL = (
    ((int(REPEATS),), stats.LEVEL) if REPEATS is not None else (compare.LOOKS, compare.LEVEL_OF_TWO_LOOKS)
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
Run = Any  # goodput, CPU time and ledger rows of a run
USER = ("user", "sender", "user")  # the row in which the slowed runs rewrite their messages
Blocks = list[tuple[Run, Run]]


@pytest.fixture(scope="module")
def block_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(os.environ.get("COPYSCOPE_KEPT") or tmp_path_factory.mktemp("blocks"))


def measured(directory: Path, way: str) -> Blocks:
    """Measure blocks until BLOCKS valid ones exist, and return them."""
    while (missing := BLOCKS - len(blocks := list(read(directory / way)))) > 0:
        out = directory / way / str(len(list((directory / way).glob("*"))))
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
                return list(read(directory / way))
    return blocks


def read(directory: Path) -> Blocks:
    """Read the valid blocks of earlier calls of `compare` in a directory."""
    blocks = []
    for first in sorted(directory.glob("*/1-one_copy.jsonl.gz")):
        sides = [
            {run.raw.run.repeat: run for run in diff.valid_runs(file)}
            for file in (first, first.with_name("2-one_copy.jsonl.gz"))
        ]
        for block in sides[0].keys() & sides[1].keys():
            runs = [side[block] for side in sides]
            if not all(run.derived.verdict.valid for run in runs):
                continue
            values = [{name: difference.read_metric(run, name) for name in METRICS} for run in runs]
            a, b = ({**metrics, "rows": row_costs(run)} for metrics, run in zip(values, runs, strict=True))
            blocks.append((a, b))
    return blocks


def verdicts(blocks: Blocks, draws: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the verdicts of `draws` comparisons of randomly drawn blocks."""
    monkeypatch.setattr(difference, "read_metric", lambda run, name: run[name])
    monkeypatch.setattr(difference, "row_costs", lambda run: run["rows"])
    chance, how = random.Random(1), ComparisonOptions(paired=True, level=LEVEL)
    counts, wanted_blocks = Counter[str](), []
    for _ in range(draws):
        drawn = chance.sample(blocks, LOOKS[-1])
        for look in LOOKS:
            before, after = zip(*drawn[:look], strict=True)
            rows = [row for name in METRICS if (row := metric_row(before, after, name, how))]
            verdict = verdict_of(rows)
            if verdict != UNSURE:
                break
        named = any(row.sure and row.verdict == WORSE for row in cost_rows(before, after, how))
        counts[f"{verdict}{', a row' * named}"] += 1
        counts["found"] += named or verdict == WORSE
        wanted_blocks.append(runs_needed(rows, (look, look), how) or look)
    print(
        f"{dict(counts)} of {draws}; median of what they ask for: {sorted(wanted_blocks)[draws // 2]} blocks"
    )
    return counts


def changes(blocks: Blocks) -> dict[str, float]:
    """Return the mean change of each metric over all blocks, as a logarithm."""
    return {name: fmean(math.log(b[name] / a[name]) for a, b in blocks) for name in METRICS}


def print_changes(way: str, blocks: Blocks) -> None:
    means = {name: f"{math.expm1(value):+.1%}" for name, value in changes(blocks).items()}
    print(f"\n{way}: {len(blocks)} blocks, mean changes {means}: ", end="")


def test_equal_runs_are_called_a_regression_twice_in_forty_at_most(
    block_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = measured(block_directory, "equal")
    print_changes("equal", blocks)
    assert verdicts(blocks, 40, monkeypatch)["found"] <= 2


def test_five_percent_are_found_in_eighteen_of_twenty(
    block_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = measured(block_directory, "slowed")
    print_changes("slowed", blocks)
    wanted, measured_changes = {GOODPUT: -math.log(1.05), CPU: math.log(1.05)}, changes(blocks)
    factors = {name: math.exp(wanted[name] - measured_changes[name]) for name in METRICS}
    excess = fmean(b["rows"].get(USER, 0.0) - a["rows"].get(USER, 0.0) for a, b in blocks)
    surplus = excess - 0.05 * fmean(a[CPU] for a, _ in blocks)
    scaled = [
        (
            a,
            {name: b[name] * factors[name] for name in METRICS}
            | {"rows": {**b["rows"], USER: b["rows"].get(USER, 0.0) - surplus}},
        )
        for a, b in blocks
    ]
    assert verdicts(scaled, 20, monkeypatch)["found"] >= 18
